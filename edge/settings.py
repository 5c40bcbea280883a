from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from edge.access.saturation import LATENESS_TOLERATED_S
from edge.http.connection_limit import MOST_CONNECTIONS
from edge.wire.client_address import Addresses
from edge.wire.cors import Cors
from services.chassis.load.gcra import LARGEST_RATE
from services.chassis.residency import DataStore, keep_in_canada
from services.chassis.settings import HostAndPort, HttpAddress, Port, Seconds, SecondsOrZero, check_all


class EdgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    # Where the folder lies: the journal's counters may not lie outside Canada.
    data_region: str = ""
    edge_host: str = "127.0.0.1"
    edge_port: Port = 8080
    # A listening socket that the process inherits; then host and port are not looked at.
    edge_fd: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # Never more than three quarters of the descriptors that the process may have.
    edge_connections: Annotated[int, msgspec.Meta(ge=1)] = MOST_CONNECTIONS
    # Where gRPC health is told.
    edge_health_listen: str = ""
    # Where those who look after the process find its health and its metrics over HTTP; without it, nowhere.
    edge_operations_listen: HostAndPort = ""
    auth_address: str = ""
    router_address: str = ""
    metering_address: str = ""
    # Where each edge keeps what it has not settled yet; without it, a folder in `data`. It must outlive the process.
    journals: Path | None = None
    # No answer goes on for longer; metering gives up a hold a little later.
    stream_life_s: Seconds = 3600.0
    # How long a stream may be silent before its first token, and between the signs of life that it gets then.
    keepalive_s: Seconds = 10.0
    # A client that takes nothing for so long, while there is something for it, has left without a word.
    stalled_reader_s: Seconds = 60.0
    # How long an edge that is asked to end takes new requests all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    # How long running answers may go on then.
    drain_s: SecondsOrZero = 30.0
    # How late the event loop may run before new chats are refused; 0: they never are.
    edge_queueing_s: SecondsOrZero = LATENESS_TOLERATED_S
    # Whose pages may call from a browser: origins with commas between, or all of them.
    cors_origins: str = "*"
    # Addresses and networks of proxies, with commas between, whose X-Forwarded-For is believed.
    trusted_proxies: str = ""
    # From one address; 0: any number.
    wrong_keys_per_minute: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RATE)] = 600
    # What the edge proves itself with to services on TCP, and whom it believes.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # The collector that traces are brought to, http://HOST:PORT; without it, none are made.
    otlp_endpoint: HttpAddress = ""
    # Which part of the chats is traced.
    trace_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    debug: bool = False

    def check(self) -> None:
        check_all(
            partial(keep_in_canada, [DataStore("DATA", self.data_region)]),
            partial(Addresses, self.trusted_proxies),
            partial(Cors, self.cors_origins),
        )

    def address(self, service: str) -> str:
        given: str = getattr(self, f"{service}_address")
        return given or f"unix:{self.data.resolve()}/run/{service}.sock"

    @property
    def journals_folder(self) -> Path:
        return self.journals or self.data / "journals"
