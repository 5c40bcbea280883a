"""The processes of Legato on one machine, and what each is told."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cli.supervision.data_folder import socket_of
from cli.supervision.environment import (
    CREDENTIAL_KEY_VARIABLE,
    GROUNDING_KEY_VARIABLE,
    LOCAL_MODEL,
    PAYMENTS,
    PEPPERS_VARIABLE,
    REASONING_KEY_VARIABLE,
    environment_of,
)
from cli.supervision.health import HealthProbe
from cli.supervision.scale import Scale
from cli.supervision.settings import UpSettings
from cli.supervision.supervisor import ProcessSpec
from services.chassis.access_tokens import PUBLIC_KEYS_VARIABLE, SIGNING_KEY_VARIABLE

SERVICES = ("auth", "metering", "router")
CONSOLE_PORT = 8081
OPERATOR_CONSOLE = "operator-console"


class ConsoleStart(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the console is started with."""

    # The sockets that it serves, bound and listening.
    fds: tuple[int, ...]
    # Its own origin, and the API's base address.
    url: str
    api_url: str


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `legato up` decides before it starts anything."""

    data: Path
    routes: Path
    prices: Path
    settings: UpSettings
    uses_local_model: bool
    scale: Scale = Scale()
    # By the variables from which processes take them.
    secrets: Mapping[str, str]
    # The public socket, bound and listening.
    edge_fd: int
    # Those of the edges for programs, in their order, alike.
    edge_rpc_fds: tuple[int, ...]
    # Held by every process, so that the next supervisor can wait for the last of them.
    lock_fd: int
    # None: there is no console.
    console: ConsoleStart | None = None

    @property
    def console_url(self) -> str:
        """The console's origin; of one that runs elsewhere, or not at all, as it is set."""
        return self.console.url if self.console else self.settings.console_url or f"http://localhost:{CONSOLE_PORT}"

    @property
    def takes_payments(self) -> bool:
        """Says whether credit can be bought by card."""
        return bool(self.settings.stripe_secret_key) and self.console is not None

    def socket_address(self, process: str) -> str:
        return f"unix:{socket_of(process, self.data)}"

    def addresses_of_services(self, suffix: str = "") -> dict[str, str]:
        """Returns the sockets of all processes of each service, by the variable that others find them by."""
        return {
            f"LEGATO_{service.upper()}_ADDRESS": ",".join(
                self.socket_address(f"{name}{suffix}") for name in self.scale.names_of(service)
            )
            for service in SERVICES
        }


def process_groups(installation: Installation) -> Sequence[Sequence[ProcessSpec]]:
    """Returns the groups so that each depends only on earlier ones; so they end from the last to the first."""
    names_of = installation.scale.names_of
    edges = [_edge(installation, number, name) for number, name in enumerate(names_of("edge"), 1)]
    services = [
        [_service(installation, service, number, name) for number, name in enumerate(names_of(service), 1)]
        for service in SERVICES
    ]
    model = [[_local_model(installation)]] if installation.uses_local_model else []
    console = [[_console(installation, installation.console)]] if installation.console else []
    payments = [[_payments(installation)]] if installation.takes_payments else []
    return [*model, *services, edges, *payments, *console]


def _service(installation: Installation, service: str, number: int, name: str) -> ProcessSpec:
    count = len(installation.scale.names_of(service))
    own = _of_servers(installation, service, name)
    if operations := _operations_address(installation, service, number, name):
        own[f"LEGATO_{service.upper()}_METRICS_LISTEN"] = operations
    for variable, listen in installation.settings.further_listens.items():
        if variable.startswith(f"LEGATO_{service.upper()}_"):
            own[variable] = _listen_of(listen, number)
    if service == "auth":
        own["LEGATO_CONSOLE_URL"] = installation.console_url
        for variable in (PEPPERS_VARIABLE, SIGNING_KEY_VARIABLE, CREDENTIAL_KEY_VARIABLE):
            own[variable] = installation.secrets.get(variable, "")
    if service == "router":
        keys = {name: installation.secrets.get(name, "") for name in (GROUNDING_KEY_VARIABLE, REASONING_KEY_VARIABLE)}
        own |= {name: key for name, key in keys.items() if key}
    if service == "router" and count > 1:
        own |= _share_of_local_model(installation.settings, count)
    if service == "metering" and count > 1:
        own["LEGATO_METERING_REPLICAS"] = str(count)
        if number > 1:
            # Each would audit the same ledger.
            own["LEGATO_AUDIT_INTERVAL_S"] = "0"
    return _process(installation, service, name, f"services.{service}", own)


def _of_servers(installation: Installation, service: str, name: str) -> dict[str, str]:
    """Returns what each process is told that serves the console beside other processes."""
    return {
        f"LEGATO_{service.upper()}_LISTEN": installation.socket_address(name),
        f"LEGATO_{service.upper()}_CONSOLE_LISTEN": installation.socket_address(f"{name}-console"),
        "LEGATO_CONSOLE_ROLE": installation.settings.console_role,
        PUBLIC_KEYS_VARIABLE: installation.secrets.get(PUBLIC_KEYS_VARIABLE, ""),
    }


def _share_of_local_model(settings: UpSettings, routers: int) -> dict[str, str]:
    """Divides the places at the one bundled model, each of which takes a thread of it. Routers only use the sum of the
    two settings."""
    share = max(1, (settings.local_model_parallel + settings.local_model_queue) // routers)
    return {"LEGATO_LOCAL_MODEL_PARALLEL": "1", "LEGATO_LOCAL_MODEL_QUEUE": str(share - 1)}


def _edge(installation: Installation, number: int, name: str) -> ProcessSpec:
    rpc_fd = installation.edge_rpc_fds[number - 1]
    own = {
        "LEGATO_CONSOLE_URL": installation.console_url if installation.console else "",
        "LEGATO_DRAIN_S": str(installation.settings.drain_s),
        "LEGATO_EDGE_FD": str(installation.edge_fd),
        "LEGATO_EDGE_HEALTH_LISTEN": installation.socket_address(name),
        "LEGATO_EDGE_OPERATIONS_LISTEN": _operations_address(installation, "edge", number, name),
        "LEGATO_EDGE_POSITION": f"{number}/{installation.scale.edges}",
        "LEGATO_EDGE_RPC_FD": str(rpc_fd),
        "LEGATO_EDGE_RPC_LISTEN": rpc_addresses(installation.settings, installation.data, installation.scale)[
            number - 1
        ],
    }
    return _process(installation, "edge", name, "edge", own, fds=(installation.edge_fd, rpc_fd))


def rpc_addresses(settings: UpSettings, data: Path, scale: Scale) -> list[str]:
    """Returns where the edges serve programs: the first at `chat`, further ones at `chat-2` and so on."""
    numbers = range(1, scale.edges + 1)
    if listen := settings.edge_rpc_listen:
        return [_listen_of(listen, number) for number in numbers]
    return [f"unix:{socket_of('chat' if number == 1 else f'chat-{number}', data)}" for number in numbers]


def _console(installation: Installation, console: ConsoleStart) -> ProcessSpec:
    payments = installation.socket_address(f"{PAYMENTS}-console") if installation.takes_payments else ""
    own = {
        **installation.addresses_of_services("-console"),
        "LEGATO_CONSOLE_URL": console.url,
        "LEGATO_CONSOLE_API_URL": console.api_url,
        "LEGATO_CONSOLE_FD": ",".join(map(str, console.fds)),
        "LEGATO_CONSOLE_HEALTH_LISTEN": installation.socket_address("console"),
        "LEGATO_CONSOLE_ROLE": installation.settings.console_role,
        "LEGATO_PAYMENTS_ADDRESS": payments,
        "LEGATO_CONSOLE_OPERATIONS_LISTEN": _operations_address(installation, "console", 1, "console"),
        "LEGATO_CONSOLE_STATUS_ADDRESSES": ",".join(_status_addresses(installation)),
    }
    return _process(installation, "console", "console", "console", own, fds=console.fds, is_awaited=False)


def _payments(installation: Installation) -> ProcessSpec:
    own = {
        **_of_servers(installation, PAYMENTS, PAYMENTS),
        "LEGATO_PAYMENTS_METRICS_LISTEN": _operations_address(installation, PAYMENTS, 1, PAYMENTS),
        "LEGATO_CONSOLE_URL": installation.console_url,
    }
    return _process(installation, PAYMENTS, PAYMENTS, "services.payments", own, is_awaited=False)


def _local_model(installation: Installation) -> ProcessSpec:
    from services.router.local_model import WORK_PATH

    health = HealthProbe("http", str(socket_of(LOCAL_MODEL, installation.data)), WORK_PATH)
    return _process(installation, LOCAL_MODEL, LOCAL_MODEL, "services.router.local_model", {}, health=health)


def _process(
    installation: Installation,
    kind: str,
    name: str,
    module: str,
    own: Mapping[str, str],
    *,
    fds: tuple[int, ...] = (),
    health: HealthProbe | None = None,
    is_awaited: bool = True,
) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        # -P ignores a folder named `services` in the working directory.
        argv=[sys.executable, "-P", "-m", module],
        environ=environment_of(kind, {**_shared(installation), **own}),
        health=health or HealthProbe("grpc", str(socket_of(name, installation.data))),
        pass_fds=(installation.lock_fd, *fds),
        is_awaited=is_awaited,
    )


def _shared(installation: Installation) -> dict[str, str]:
    return {
        **installation.addresses_of_services(),
        "LEGATO_DATA": str(installation.data),
        "LEGATO_ROUTES": str(installation.routes),
        "LEGATO_PRICES": str(installation.prices),
        "LEGATO_LOCAL_MODEL_SOCKET": str(socket_of(LOCAL_MODEL, installation.data)),
        "PYTHONUNBUFFERED": "1",
    }


def _operations_address(installation: Installation, kind: str, number: int, name: str) -> str:
    """Returns where a process serves health and metrics: where it is told to, or a socket for the operators' console.
    Empty: nowhere."""
    settings = installation.settings
    further = settings.further_listens.get(f"LEGATO_{kind.upper()}_METRICS_LISTEN", "")
    own = {"edge": settings.edge_operations_listen, "console": settings.console_operations_listen}
    if listen := own.get(kind, further):
        return _listen_of(listen, number)
    if installation.console is None or settings.console_role != OPERATOR_CONSOLE:
        return ""
    return installation.socket_address(f"{name}-http")


def _status_addresses(installation: Installation) -> Iterator[str]:
    """Yields each process that serves health and metrics at a known address, as NAME=ADDRESS."""
    for kind in ("edge", *SERVICES, *([PAYMENTS] if installation.takes_payments else []), "console"):
        names = ["console"] if kind == "console" else installation.scale.names_of(kind)
        for number, name in enumerate(names, 1):
            address = _operations_address(installation, kind, number, name)
            if address and not address.endswith(":0"):
                yield f"{name}={address}"


def _listen_of(listen: str, number: int) -> str:
    """Returns the address of a process: its number's port, if `listen` is that of the first."""
    host, _, port = listen.rpartition(":")
    # Port 0 is a different free port each time.
    return f"{host}:{int(port) + number - 1}" if port.isdecimal() and int(port) else listen
