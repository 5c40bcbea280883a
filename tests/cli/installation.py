"""Decisions of `legato up`, for whoever asks what it starts then."""

from pathlib import Path

from cli.supervision.processes import Installation

PEPPER = "1:" + "ab" * 32


def installation(*, uses_local_model: bool = True, workers: int = 1, edge_operations_listen: str = "") -> Installation:
    return Installation(
        data=Path("/srv/legato"),
        routes=Path("/etc/routes.toml"),
        prices=Path("/etc/prices.toml"),
        uses_local_model=uses_local_model,
        workers=workers,
        drain_s=8.0,
        key_peppers=PEPPER,
        edge_fd=7,
        edge_operations_listen=edge_operations_listen,
        lock_fd=8,
    )
