"""Decisions of `legato up`, for tests of what it starts then."""

from pathlib import Path
from typing import Any

from cli.supervision.processes import ConsoleStart, Installation, process_groups
from cli.supervision.scale import Scale
from cli.supervision.settings import UpSettings
from cli.supervision.supervisor import ProcessSpec

PEPPER = "1:" + "ab" * 32
CONSOLE = ConsoleStart(fds=(9, 10), url="http://localhost:9000", api_url="http://127.0.0.1:1/v1")


def installation(
    *,
    uses_local_model: bool = True,
    workers: int = 1,
    routers: int = 1,
    meterings: int = 1,
    console: ConsoleStart | None = None,
    secrets: dict[str, str] | None = None,
    **settings: Any,
) -> Installation:
    """Has the settings of `legato up` that are given, and the defaults of the others."""
    return Installation(
        data=Path("/srv/legato"),
        routes=Path("/etc/routes.toml"),
        prices=Path("/etc/prices.toml"),
        settings=UpSettings(**settings),
        uses_local_model=uses_local_model,
        scale=Scale(workers, routers, meterings),
        secrets={"LEGATO_KEY_PEPPERS": PEPPER, **(secrets or {})},
        edge_fd=7,
        edge_rpc_fds=tuple(range(20, 84)),
        lock_fd=8,
        console=console,
    )


def by_name(made: Installation) -> dict[str, ProcessSpec]:
    return {spec.name: spec for group in process_groups(made) for spec in group}
