"""Which processes make up Legato on one machine, and what each of them is told."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cli.data_folder import socket_of
from cli.health import Health
from cli.supervisor import ProcessSpec

LOCAL_MODEL = "local-model"
PEPPERS_VARIABLE = "LEGATO_KEY_PEPPERS"
GROUNDING_KEY_VARIABLE = "LEGATO_GROUNDING_KEY"
SECRETS = (PEPPERS_VARIABLE, GROUNDING_KEY_VARIABLE)
# gRPC's event engine hands every message from one thread to another. gRPC reads this when it is loaded, so no process
# can tell itself; the image says the same.
GRPC_WITHOUT_EVENT_ENGINE = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `legato up` decides before it starts anything."""

    data: Path
    routes: Path
    prices: Path
    uses_local_model: bool
    workers: int
    drain_s: float
    key_peppers: str
    # Empty: chats are not grounded in anything that is kept.
    grounding_key: str = ""
    # The public socket, bound and listening.
    edge_fd: int
    # HOST:PORT where the first edge tells its health and metrics, each further one a port above; empty: none does.
    edge_operations_listen: str = ""
    # Held by every process, so that the next supervisor can wait for the last of them.
    lock_fd: int


def process_groups(installation: Installation) -> Sequence[Sequence[ProcessSpec]]:
    """In the order in which they may go on without those before them; so they end from the last to the first."""
    edges = [_edge(installation, number) for number in range(1, installation.workers + 1)]
    services = [[_service(installation, name)] for name in ("auth", "metering", "router")]
    model = [[_local_model(installation)]] if installation.uses_local_model else []
    return [*model, *services, edges]


def _service(installation: Installation, name: str) -> ProcessSpec:
    secrets = {}
    if name == "auth":
        secrets[PEPPERS_VARIABLE] = installation.key_peppers
    if name == "router" and installation.grounding_key:
        secrets[GROUNDING_KEY_VARIABLE] = installation.grounding_key
    return ProcessSpec(
        name=name,
        argv=_python_module(f"services.{name}"),
        environ=_environ(installation, secrets),
        health=Health("grpc", str(socket_of(name, installation.data))),
        pass_fds=(installation.lock_fd,),
    )


def _edge(installation: Installation, number: int) -> ProcessSpec:
    name = f"edge-{number}"
    socket = socket_of(name, installation.data)
    return ProcessSpec(
        name=name,
        argv=_python_module("edge"),
        environ=_environ(
            installation,
            {
                "LEGATO_DRAIN_S": str(installation.drain_s),
                "LEGATO_EDGE_FD": str(installation.edge_fd),
                "LEGATO_EDGE_HEALTH_LISTEN": f"unix:{socket}",
                "LEGATO_EDGE_OPERATIONS_LISTEN": _operations_listen(installation.edge_operations_listen, number),
            },
        ),
        health=Health("grpc", str(socket)),
        pass_fds=(installation.lock_fd, installation.edge_fd),
    )


def _operations_listen(listen: str, number: int) -> str:
    host, _, port = listen.rpartition(":")
    # Any port that is free is another one each time.
    return f"{host}:{int(port) + number - 1}" if listen and int(port) else listen


def _local_model(installation: Installation) -> ProcessSpec:
    return ProcessSpec(
        name=LOCAL_MODEL,
        argv=_python_module("services.router.local_model"),
        environ=_environ(installation),
        health=Health("http", str(socket_of(LOCAL_MODEL, installation.data))),
        pass_fds=(installation.lock_fd,),
    )


def _environ(installation: Installation, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """`own`: what this process alone is told."""
    decided = {**_shared(installation), **(own or {})}
    # Nor does a file say it a second time, as `LEGATO_DATA_FILE` would.
    unwanted = {*decided, *SECRETS}
    handed_on = {name: value for name, value in os.environ.items() if name.removesuffix("_FILE") not in unwanted}
    return {**GRPC_WITHOUT_EVENT_ENGINE, **handed_on, **decided}


def _shared(installation: Installation) -> dict[str, str]:
    addresses = {}
    for name in ("auth", "metering", "router"):
        address = f"unix:{socket_of(name, installation.data)}"
        addresses[f"LEGATO_{name.upper()}_LISTEN"] = address
        addresses[f"LEGATO_{name.upper()}_ADDRESS"] = address
    return {
        **addresses,
        "LEGATO_DATA": str(installation.data),
        "LEGATO_ROUTES": str(installation.routes),
        "LEGATO_PRICES": str(installation.prices),
        "LEGATO_LOCAL_MODEL_SOCKET": str(socket_of(LOCAL_MODEL, installation.data)),
        "PYTHONUNBUFFERED": "1",
    }


def _python_module(module: str) -> Sequence[str]:
    # -P: a folder named `services` where the command was typed is not ours.
    return [sys.executable, "-P", "-m", module]
