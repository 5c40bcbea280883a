"""The processes of Legato on one machine, and the environment of each.

A process gets its own secrets and no others. Only the router calls providers, whose keys may have any name, so only
the router gets variables that are not known to be harmless.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cli.supervision.data_folder import socket_of
from cli.supervision.health import HealthProbe
from cli.supervision.scale import Scale
from cli.supervision.supervisor import ProcessSpec
from services.chassis.access_tokens import PUBLIC_KEYS_VARIABLE, SIGNING_KEY_VARIABLE
from services.chassis.process import failpoints
from services.chassis.settings import PREFIX, SETTINGS_VARIABLE

LOCAL_MODEL = "local-model"
OPERATOR_CONSOLE = "operator-console"
PEPPERS_VARIABLE = "LEGATO_KEY_PEPPERS"
GROUNDING_KEY_VARIABLE = "LEGATO_GROUNDING_KEY"
CREDENTIAL_KEY_VARIABLE = "LEGATO_CREDENTIAL_ENCRYPTION_KEY"
SECRETS = (PEPPERS_VARIABLE, GROUNDING_KEY_VARIABLE, SIGNING_KEY_VARIABLE, CREDENTIAL_KEY_VARIABLE)
# Passed on to auth alone.
SECRETS_OF_AUTH = ("LEGATO_OIDC_CLIENT_SECRET", "LEGATO_SMTP_URL")
# Passed on to payments alone.
SECRETS_OF_PAYMENTS = ("LEGATO_STRIPE_SECRET_KEY", "LEGATO_STRIPE_WEBHOOK_SECRET")
PAYMENTS = "payments"
VALKEY_VARIABLE = "LEGATO_VALKEY_URL"
# Variables of Python, gRPC, the C library, TLS and database drivers.
HARMLESS = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)
HARMLESS_PREFIXES = (
    "COVERAGE_", "COV_CORE_", "GGML_", "GLIBC_", "GRPC_", "LC_", "LD_", "MALLOC_", "OMP_", "OPENSSL_", "PYTHON",
    "SSL_CERT_", "VIRTUAL_ENV", "XDG_",
)  # fmt: skip
# The driver's own settings, with passwords: only for services that have a database.
DATABASE_PREFIX = "PG"
WITH_DATABASE = ("auth", "metering", "router")
# gRPC's event engine passes every message between threads. gRPC reads this when it is loaded, so no process can set
# it for itself; the image sets the same.
GRPC_WITHOUT_EVENT_ENGINE = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}


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
    uses_local_model: bool
    scale: Scale = Scale()
    # How many chats the bundled model may have at once, those that wait included.
    local_model_places: int
    drain_s: float
    key_peppers: str
    # Empty: chats use no stored notes and documents.
    grounding_key: str = ""
    # Of users' access tokens. Empty: nobody can sign in.
    access_token_signing_key: str = ""
    access_token_public_keys: str = ""
    # Encrypts what users gave us.
    credential_encryption_key: str = ""
    # The console's origin, and what it may do; on one machine it serves operators too.
    console_url: str = "http://localhost:8081"
    console_role: str = OPERATOR_CONSOLE
    # The public socket, bound and listening.
    edge_fd: int
    # HOST:PORT of the first edge's health and metrics, each further one has the next port; empty: none has any.
    edge_operations_listen: str = ""
    # None: there is no console.
    console: ConsoleStart | None = None
    # Credit can be bought by card.
    takes_payments: bool = False
    # The same for routers and metering processes: further addresses that each of them listens on.
    further_listens: dict[str, str] = {}
    # Held by every process, so that the next supervisor can wait for the last of them.
    lock_fd: int


def process_groups(installation: Installation) -> Sequence[Sequence[ProcessSpec]]:
    """Returns the groups so that each depends only on earlier ones; so they end from the last to the first."""
    edges = [_edge(installation, number) for number in range(1, installation.scale.edges + 1)]
    services = [
        [_service(installation, service, number) for number in range(1, count + 1)]
        for service, count in counts_of(installation.scale).items()
    ]
    model = [[_local_model(installation)]] if installation.uses_local_model else []
    console = [[_console(installation, installation.console)]] if installation.console else []
    payments = [[_payments(installation)]] if installation.takes_payments else []
    return [*model, *services, edges, *payments, *console]


def counts_of(scale: Scale) -> dict[str, int]:
    """Returns the number of processes of each service."""
    return {"auth": 1, "metering": scale.meterings, "router": scale.routers}


def names_of(service: str, count: int) -> list[str]:
    """Returns the names of a service's processes: they are numbered if there are several."""
    return [service] if count == 1 else [f"{service}-{number}" for number in range(1, count + 1)]


def _service(installation: Installation, service: str, number: int) -> ProcessSpec:
    count = counts_of(installation.scale)[service]
    name = names_of(service, count)[number - 1]
    socket = socket_of(name, installation.data)
    own = {
        f"LEGATO_{service.upper()}_LISTEN": f"unix:{socket}",
        f"LEGATO_{service.upper()}_CONSOLE_LISTEN": f"unix:{socket_of(f'{name}-console', installation.data)}",
        PUBLIC_KEYS_VARIABLE: installation.access_token_public_keys,
        "LEGATO_CONSOLE_ROLE": installation.console_role,
    }
    if operations := _operations_address(installation, service, number):
        own[f"LEGATO_{service.upper()}_METRICS_LISTEN"] = operations
    for variable, listen in installation.further_listens.items():
        if variable.startswith(f"LEGATO_{service.upper()}_"):
            own[variable] = _listen_of(listen, number)
    if service == "auth":
        own[PEPPERS_VARIABLE] = installation.key_peppers
        own[SIGNING_KEY_VARIABLE] = installation.access_token_signing_key
        own[CREDENTIAL_KEY_VARIABLE] = installation.credential_encryption_key
        own["LEGATO_CONSOLE_URL"] = installation.console_url
    if service == "router" and installation.grounding_key:
        own[GROUNDING_KEY_VARIABLE] = installation.grounding_key
    if service == "router" and count > 1:
        own |= _share_of_local_model(installation.local_model_places, count)
    if service == "metering" and count > 1:
        own["LEGATO_METERING_REPLICAS"] = str(count)
        if number > 1:
            # Each would audit the same ledger.
            own["LEGATO_AUDIT_INTERVAL_S"] = "0"
    return ProcessSpec(
        name=name,
        argv=_python_module(f"services.{service}"),
        environ=_environ(installation, service, own),
        health=HealthProbe("grpc", str(socket)),
        pass_fds=(installation.lock_fd,),
    )


def _share_of_local_model(places: int, routers: int) -> dict[str, str]:
    """Divides the places at the one bundled model, each of which takes a thread of it. Routers only use the sum of the
    two settings."""
    share = max(1, places // routers)
    return {"LEGATO_LOCAL_MODEL_PARALLEL": "1", "LEGATO_LOCAL_MODEL_QUEUE": str(share - 1)}


def _edge(installation: Installation, number: int) -> ProcessSpec:
    name = f"edge-{number}"
    socket = socket_of(name, installation.data)
    return ProcessSpec(
        name=name,
        argv=_python_module("edge"),
        environ=_environ(
            installation,
            "edge",
            {
                "LEGATO_CONSOLE_URL": installation.console_url if installation.console else "",
                "LEGATO_DRAIN_S": str(installation.drain_s),
                "LEGATO_EDGE_FD": str(installation.edge_fd),
                "LEGATO_EDGE_HEALTH_LISTEN": f"unix:{socket}",
                "LEGATO_EDGE_OPERATIONS_LISTEN": _operations_address(installation, "edge", number),
                "LEGATO_EDGE_POSITION": f"{number}/{installation.scale.edges}",
            },
        ),
        health=HealthProbe("grpc", str(socket)),
        pass_fds=(installation.lock_fd, installation.edge_fd),
    )


def _console(installation: Installation, console: ConsoleStart) -> ProcessSpec:
    socket = socket_of("console", installation.data)
    addresses = {
        f"LEGATO_{service.upper()}_ADDRESS": ",".join(
            f"unix:{socket_of(f'{name}-console', installation.data)}" for name in names_of(service, count)
        )
        for service, count in counts_of(installation.scale).items()
    }
    return ProcessSpec(
        name="console",
        argv=_python_module("console"),
        environ=_environ(
            installation,
            "console",
            {
                **addresses,
                "LEGATO_CONSOLE_URL": console.url,
                "LEGATO_CONSOLE_API_URL": console.api_url,
                "LEGATO_CONSOLE_FD": ",".join(map(str, console.fds)),
                "LEGATO_CONSOLE_HEALTH_LISTEN": f"unix:{socket}",
                "LEGATO_CONSOLE_ROLE": installation.console_role,
                "LEGATO_PAYMENTS_ADDRESS": _payments_address(installation) if installation.takes_payments else "",
                "LEGATO_CONSOLE_STATUS_ADDRESSES": ",".join(_status_addresses(installation)),
            },
        ),
        health=HealthProbe("grpc", str(socket)),
        pass_fds=(installation.lock_fd, *console.fds),
        is_awaited=False,
    )


def _payments(installation: Installation) -> ProcessSpec:
    socket = socket_of(PAYMENTS, installation.data)
    own = {
        "LEGATO_PAYMENTS_LISTEN": f"unix:{socket}",
        "LEGATO_PAYMENTS_CONSOLE_LISTEN": _payments_address(installation),
        "LEGATO_PAYMENTS_METRICS_LISTEN": _operations_address(installation, PAYMENTS, 1),
        "LEGATO_CONSOLE_URL": installation.console_url,
        "LEGATO_CONSOLE_ROLE": installation.console_role,
        PUBLIC_KEYS_VARIABLE: installation.access_token_public_keys,
    }
    return ProcessSpec(
        name=PAYMENTS,
        argv=_python_module("services.payments"),
        environ=_environ(installation, PAYMENTS, own),
        health=HealthProbe("grpc", str(socket)),
        pass_fds=(installation.lock_fd,),
        is_awaited=False,
    )


def _payments_address(installation: Installation) -> str:
    return f"unix:{socket_of(f'{PAYMENTS}-console', installation.data)}"


def _operations_address(installation: Installation, kind: str, number: int) -> str:
    """Returns where a process serves health and metrics: where it is told to, or a socket for the operators' console.
    Empty: nowhere."""
    further = installation.further_listens.get(f"LEGATO_{kind.upper()}_METRICS_LISTEN", "")
    if listen := installation.edge_operations_listen if kind == "edge" else further:
        return _listen_of(listen, number)
    if installation.console is None or installation.console_role != OPERATOR_CONSOLE:
        return ""
    return f"unix:{socket_of(f'{_names(installation)[kind][number - 1]}-http', installation.data)}"


def _status_addresses(installation: Installation) -> Iterator[str]:
    """Yields each process that serves health and metrics at a known address, as NAME=ADDRESS."""
    for kind, names in _names(installation).items():
        for number, name in enumerate(names, 1):
            address = _operations_address(installation, kind, number)
            if address and not address.endswith(":0"):
                yield f"{name}={address}"


def _names(installation: Installation) -> dict[str, list[str]]:
    edges = [f"edge-{number}" for number in range(1, installation.scale.edges + 1)]
    counts = counts_of(installation.scale)
    payments = {PAYMENTS: [PAYMENTS]} if installation.takes_payments else {}
    return {"edge": edges, **{service: names_of(service, count) for service, count in counts.items()}, **payments}


def _listen_of(listen: str, number: int) -> str:
    """Returns the address of a process: its number's port, if `listen` is that of the first."""
    host, _, port = listen.rpartition(":")
    # Port 0 is a different free port each time.
    return f"{host}:{int(port) + number - 1}" if port.isdecimal() and int(port) else listen


def _local_model(installation: Installation) -> ProcessSpec:
    from services.router.local_model import WORK_PATH

    return ProcessSpec(
        name=LOCAL_MODEL,
        argv=_python_module("services.router.local_model"),
        environ=_environ(installation, LOCAL_MODEL),
        health=HealthProbe("http", str(socket_of(LOCAL_MODEL, installation.data)), WORK_PATH),
        pass_fds=(installation.lock_fd,),
    )


def _environ(installation: Installation, process: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns a process's environment, with `own` variables."""
    decided = {**_shared(installation), **(own or {})}
    # Also excludes their `_FILE` forms, such as `LEGATO_DATA_FILE`.
    unwanted = {*decided, *SECRETS}
    known = _known_to(process)
    handed_on = {
        name: value
        for name, value in os.environ.items()
        if name.removesuffix("_FILE") not in unwanted and _is_for(process, name, known)
    }
    return {**GRPC_WITHOUT_EVENT_ENGINE, **handed_on, **decided}


def _is_for(process: str, name: str, known: Collection[str]) -> bool:
    if process == "router":
        return name.removesuffix("_FILE") not in (VALKEY_VARIABLE, *SECRETS_OF_AUTH, *SECRETS_OF_PAYMENTS)
    if name.startswith(DATABASE_PREFIX) and process in WITH_DATABASE:
        return True
    return name in HARMLESS or name.startswith(HARMLESS_PREFIXES) or name.removesuffix("_FILE") in known


def _known_to(process: str) -> set[str]:
    """Returns a process's settings as variables."""
    # Imported here, since `legato --help` does not need them.
    from console.settings import ConsoleServerSettings
    from edge.settings import EdgeSettings
    from services.auth.settings import AuthSettings
    from services.metering.settings import MeteringSettings
    from services.payments.settings import PaymentsSettings
    from services.router.local_model import LocalModelSettings

    # The router is not here: it also needs what the routes file names, today's and the next one's.
    kinds: dict[str, type[msgspec.Struct]] = {
        "console": ConsoleServerSettings,
        "edge": EdgeSettings,
        "auth": AuthSettings,
        "metering": MeteringSettings,
        PAYMENTS: PaymentsSettings,
        LOCAL_MODEL: LocalModelSettings,
    }
    kind = kinds.get(process)
    fields = msgspec.structs.fields(kind) if kind is not None else ()
    return {SETTINGS_VARIABLE, failpoints.VARIABLE, *(PREFIX + field.name.upper() for field in fields)}


def _shared(installation: Installation) -> dict[str, str]:
    addresses = {}
    for service, count in counts_of(installation.scale).items():
        sockets = [socket_of(name, installation.data) for name in names_of(service, count)]
        addresses[f"LEGATO_{service.upper()}_LISTEN"] = f"unix:{sockets[0]}"
        addresses[f"LEGATO_{service.upper()}_ADDRESS"] = ",".join(f"unix:{socket}" for socket in sockets)
    return {
        **addresses,
        "LEGATO_DATA": str(installation.data),
        "LEGATO_ROUTES": str(installation.routes),
        "LEGATO_PRICES": str(installation.prices),
        "LEGATO_LOCAL_MODEL_SOCKET": str(socket_of(LOCAL_MODEL, installation.data)),
        "PYTHONUNBUFFERED": "1",
    }


def _python_module(module: str) -> Sequence[str]:
    # -P ignores a folder named `services` in the working directory.
    return [sys.executable, "-P", "-m", module]
