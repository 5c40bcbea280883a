"""Decisions of `legato up`, for whoever asks what it starts then."""

from pathlib import Path

from cli.supervision.processes import Installation
from cli.supervision.scale import Scale

PEPPER = "1:" + "ab" * 32


def installation(
    *,
    uses_local_model: bool = True,
    workers: int = 1,
    routers: int = 1,
    meterings: int = 1,
    edge_operations_listen: str = "",
    further_listens: dict[str, str] | None = None,
    takes_payments: bool = False,
) -> Installation:
    return Installation(
        data=Path("/srv/legato"),
        routes=Path("/etc/routes.toml"),
        prices=Path("/etc/prices.toml"),
        uses_local_model=uses_local_model,
        scale=Scale(workers, routers, meterings),
        local_model_places=34,
        drain_s=8.0,
        key_peppers=PEPPER,
        edge_fd=7,
        edge_operations_listen=edge_operations_listen,
        further_listens=further_listens or {},
        lock_fd=8,
        takes_payments=takes_payments,
    )
