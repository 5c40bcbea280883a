from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from edge.access.saturation import LATENESS_TOLERATED_S
from edge.backends.outage_wait import WaitLimits
from edge.backends.position import parse_position
from edge.wire.origins import parse_origins
from services.chassis.http.addresses import Addresses
from services.chassis.http.connection_limit import MOST_CONNECTIONS
from services.chassis.load.gcra import LARGEST_RATE
from services.chassis.load.prompt_memory import PROMPT_BYTES, PromptBytes
from services.chassis.process.settings import ProcessSettings
from services.chassis.rpc.replicas import parse_endpoints
from services.chassis.settings import HttpAddress, OperationsListen, Port, Seconds, SecondsOrZero, check_all
from services.rules.residency import DataStore, keep_in_canada


class EdgeSettings(ProcessSettings, frozen=True, kw_only=True):
    # The region of the data folder: the journal's counters must stay in Canada.
    data_region: str = ""
    edge_host: str = "127.0.0.1"
    edge_port: Port = 8080
    # The descriptor of an inherited listening socket; then host and port are ignored.
    edge_fd: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # Capped at three quarters of the process's descriptor limit.
    edge_connections: Annotated[int, msgspec.Meta(ge=1)] = MOST_CONNECTIONS
    # Limit on the prompts of all chats whose answers have not begun.
    prompt_bytes: PromptBytes = PROMPT_BYTES
    # unix:PATH or HOST:PORT of the gRPC service for programs; default: a socket in `data`.
    edge_rpc_listen: str = ""
    # The descriptor of an inherited socket that listens there.
    edge_rpc_fd: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # Serves it over TCP without certificates.
    insecure_tcp: bool = False
    # Address of the gRPC health service.
    edge_health_listen: str = ""
    # HOST:PORT of health and metrics over HTTP; empty disables them.
    edge_operations_listen: OperationsListen = ""
    auth_address: str = ""
    router_address: str = ""
    metering_address: str = ""
    # How many routers an edge uses if there are more; 0 means all of them.
    router_subset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 3
    # What an edge must know to choose them: its position, NUMBER/COUNT, or addresses that resolve to all edges.
    edge_position: str = ""
    edge_peers: str = ""
    # Routers in the same zone are preferred.
    zone: str = ""
    # The folder of the journals of unsettled requests; default: in `data`. It must outlive the process.
    journals: Path | None = None
    # While auth, metering or their database is away: how long requests wait for it, how many at once, and with how many
    # bytes of bodies.
    outage_wait_s: Seconds = WaitLimits.wait_s
    outage_waiting: Annotated[int, msgspec.Meta(ge=0)] = WaitLimits.requests
    outage_waiting_bytes: Annotated[int, msgspec.Meta(ge=0)] = WaitLimits.held_bytes
    # Time limit of an answer; metering releases a hold a little later.
    stream_life_s: Seconds = 3600.0
    # Longest silence of a stream before its first token, and between keepalive comments.
    keepalive_s: Seconds = 10.0
    # Timeout of a client that reads nothing while there is data for it.
    stalled_reader_s: Seconds = 60.0
    # How long running answers may continue after that.
    drain_s: SecondsOrZero = 30.0
    # How late the event loop may run before new chats are refused; 0 disables this.
    edge_queueing_s: SecondsOrZero = LATENESS_TOLERATED_S
    # Origins whose pages may call from a browser, comma-separated, or `*` for all.
    cors_origins: str = "*"
    # The consoles' origins, comma-separated, which are always allowed: their playground calls from a browser.
    console_url: str = ""
    # Serves a page at /docs to read about the API and to try it out.
    edge_docs: bool = True
    # Comma-separated addresses and networks of proxies whose X-Forwarded-For is trusted.
    trusted_proxies: str = ""
    # Limit for one address; 0 is no limit.
    wrong_keys_per_minute: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RATE)] = 600
    # The OTLP collector of traces, http://HOST:PORT; empty disables tracing.
    otlp_endpoint: HttpAddress = ""
    # The share of chats that is traced.
    trace_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0

    def check(self) -> None:
        check_all(
            partial(keep_in_canada, [DataStore("DATA", self.data_region)]),
            partial(Addresses, self.trusted_proxies),
            partial(parse_origins, self.cors_origins, self.console_url),
            partial(parse_position, self.edge_position),
            partial(parse_endpoints, self.edge_peers),
        )

    @property
    def wait_limits(self) -> WaitLimits:
        return WaitLimits(self.outage_wait_s, self.outage_waiting, self.outage_waiting_bytes)

    @property
    def journals_folder(self) -> Path:
        return self.journals or self.data / "journals"
