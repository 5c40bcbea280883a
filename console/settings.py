from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from console.process_status import parse_addresses
from services.chassis.http.addresses import Addresses
from services.chassis.process.settings import ProcessSettings
from services.chassis.settings import (
    ConsoleRole,
    HttpAddress,
    OperationsListen,
    Port,
    Seconds,
    SettingsError,
    check_all,
)


class ConsoleServerSettings(ProcessSettings, frozen=True, kw_only=True):
    # The origins that browsers use, comma-separated. Links have the first.
    console_url: str = "http://localhost:8081"
    # The origin of the console for owners, where links for users lead; empty: this one.
    console_public_url: HttpAddress = ""
    # The base address of the API, for the examples.
    console_api_url: HttpAddress = "http://127.0.0.1:8080/v1"
    console_host: str = "127.0.0.1"
    console_port: Port = 8081
    # Descriptors of inherited listening sockets, comma-separated; then host and port are ignored.
    console_fd: Annotated[str, msgspec.Meta(pattern=r"^$|^\d+(,\d+)*$", description="numbers of descriptors")] = ""
    # Capped at three quarters of the process's descriptor limit. A tenth is for events of the payment provider.
    console_connections: Annotated[int, msgspec.Meta(ge=10)] = 1000
    # Address of the gRPC health service.
    console_health_listen: str = ""
    # HOST:PORT of health and metrics over HTTP; empty disables them.
    console_operations_listen: OperationsListen = ""
    # Whether it serves operators too. What it may do is decided by its certificate, or by the services' own setting.
    console_role: ConsoleRole = "console"
    # Whom owners write to for credit; empty: pages tell no address.
    console_contact_email: Annotated[
        str, msgspec.Meta(pattern=r"^$|^[^@\s]+@[^@\s]+$", description="an email address")
    ] = ""
    # What operators see the state of: NAME=HOST:PORT or NAME=unix:PATH, where each process serves health and metrics.
    console_status_addresses: str = ""
    auth_address: str = ""
    router_address: str = ""
    metering_address: str = ""
    # Empty: credit cannot be bought by card here.
    payments_address: str = ""
    # Comma-separated addresses and networks of proxies whose X-Forwarded-For is trusted.
    trusted_proxies: str = ""
    # How long running requests may go on after that.
    console_drain_s: Seconds = 5.0

    def check(self) -> None:
        check_all(
            self._check_origins,
            partial(Addresses, self.trusted_proxies),
            partial(parse_addresses, self.console_status_addresses),
        )

    def _check_origins(self) -> None:
        parts = [urlsplit(origin) for origin in self.origins]
        are_origins = all(each.scheme in ("http", "https") and each.hostname for each in parts)
        if not parts or not are_origins or self.origins != tuple(f"{each.scheme}://{each.netloc}" for each in parts):
            raise SettingsError("LEGATO_CONSOLE_URL: must be an origin, such as https://console.example.ca")

    @property
    def origins(self) -> tuple[str, ...]:
        given = (origin.strip().rstrip("/").lower() for origin in self.console_url.split(","))
        return tuple(origin for origin in given if origin)

    @property
    def fds(self) -> list[int]:
        return [int(fd) for fd in self.console_fd.split(",") if fd]

    def address(self, service: str) -> str:
        given: str = getattr(self, f"{service}_address")
        return given or f"unix:{self.data.resolve()}/run/{service}-console.sock"
