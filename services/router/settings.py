"""What can be set, each by `LEGATO_` and its name in capitals. What switches grounding on has settings of its own."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from services.chassis.settings import HostAndPort, HttpAddress, Seconds, SecondsOrZero
from services.router.local_model import LOCAL_MODEL_PARALLEL
from services.router.providers.base import Timeouts
from services.router.routing.routes import DEFAULT_PATH

MOST_ATTEMPTS: Final = 3


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    router_listen: str = ""
    # Where health alone is told, to those without a certificate.
    router_health_listen: str = ""
    # Where metrics are served to Prometheus over HTTP; without it they are not.
    router_metrics_listen: HostAndPort = ""
    routes: Path = DEFAULT_PATH
    local_model_socket: Path | None = None
    upstream_connect_s: Seconds = 5.0
    upstream_first_byte_s: Seconds = 120.0
    upstream_idle_s: Seconds = 60.0
    upstream_whole_s: Seconds = 600.0
    upstream_total_s: Seconds = 3600.0
    # How many models may be asked for one chat, one after the other.
    upstream_attempts: Annotated[int, msgspec.Meta(ge=1)] = MOST_ATTEMPTS
    # How much later than usual answers may begin before that is taken for a queue, at models for which the routes do
    # not say; 0: that is not measured.
    upstream_queueing_s: SecondsOrZero = 0.0
    # How many answers the bundled model works on at once, and how many chats may wait for their turn there.
    local_model_parallel: Annotated[int, msgspec.Meta(ge=1)] = LOCAL_MODEL_PARALLEL
    local_model_queue: Annotated[int, msgspec.Meta(ge=0)] = 32
    # How long a process that is asked to end takes new calls all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    # How long chats may go on then.
    drain_s: SecondsOrZero = 30.0
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # The collector that traces are brought to, http://HOST:PORT; without it, none are made.
    otlp_endpoint: HttpAddress = ""
    # Whether providers are told of them, by a header.
    trace_upstream: bool = False
    debug: bool = False

    @property
    def timeouts(self) -> Timeouts:
        """Of models for which the routes file names no others."""
        return Timeouts(
            connect_s=self.upstream_connect_s,
            first_byte_s=self.upstream_first_byte_s,
            idle_s=self.upstream_idle_s,
            whole_s=self.upstream_whole_s,
            total_s=self.upstream_total_s,
        )
