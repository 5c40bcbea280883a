"""Settings of the router, each read from `LEGATO_` plus its name in capitals. Grounding has its own settings."""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec

from services.chassis.access_tokens import check_public_keys
from services.chassis.load.prompt_memory import PROMPT_BYTES, PromptBytes
from services.chassis.process.settings import ServiceSettings
from services.chassis.rpc.replicas import parse_endpoints
from services.chassis.settings import HttpAddress, OperationsListen, Seconds, SecondsOrZero, check_all
from services.chassis.versioned_secrets import parse_versioned_secrets
from services.router.local_model import LOCAL_MODEL_PARALLEL, LOCAL_MODEL_QUEUE
from services.router.providers.base import Timeouts
from services.router.reasoning.sealed_ids import KEY_VARIABLE
from services.router.routes.routes import DEFAULT_PATH

MOST_ATTEMPTS: Final = 3


class RouterSettings(ServiceSettings, frozen=True, kw_only=True):
    router_listen: str = ""
    # Address of a health check without a client certificate.
    router_health_listen: str = ""
    # Address of the Prometheus metrics over HTTP; empty disables them.
    router_metrics_listen: OperationsListen = ""
    routes: Path = DEFAULT_PATH
    # Whether a changed file is taken over without a reload, once all routers have told metering the same version.
    follow_routes: bool = False
    # Metering's addresses, which divides models' limits among the routers. Empty: this is the only router.
    metering_address: str = ""
    local_model_socket: Path | None = None
    upstream_connect_s: Seconds = 5.0
    upstream_first_byte_s: Seconds = 120.0
    upstream_idle_s: Seconds = 60.0
    upstream_whole_s: Seconds = 600.0
    upstream_total_s: Seconds = 3600.0
    # The most models tried for one chat, one after another.
    upstream_attempts: Annotated[int, msgspec.Meta(ge=1)] = MOST_ATTEMPTS
    # Limit on the prompts of all chats whose answers have not begun.
    prompt_bytes: PromptBytes = PROMPT_BYTES
    # How many answers the bundled model generates concurrently, and how many chats may queue for it.
    local_model_parallel: Annotated[int, msgspec.Meta(ge=1)] = LOCAL_MODEL_PARALLEL
    local_model_queue: Annotated[int, msgspec.Meta(ge=0)] = LOCAL_MODEL_QUEUE
    # How long running chats may then continue.
    drain_s: SecondsOrZero = 30.0
    # OTLP collector for traces, http://HOST:PORT; empty disables tracing.
    otlp_endpoint: HttpAddress = ""
    # Whether a trace header is sent to providers.
    trace_upstream: bool = False
    # The key that seals what models think in the ids of their calls, as `VERSION:HEX`, separated by commas. Empty: that
    # of grounding, and without one a key of this router alone.
    reasoning_key: str = ""
    # A unix socket for a console.
    router_console_listen: str = ""

    def check(self) -> None:
        check_all(
            partial(check_public_keys, self.access_token_public_keys),
            partial(parse_endpoints, self.metering_address),
            partial(_check_reasoning_key, self.reasoning_key),
        )

    @property
    def timeouts(self) -> Timeouts:
        """Default timeouts for models without their own in the routes file."""
        return Timeouts(**{each.name: getattr(self, f"upstream_{each.name}") for each in fields(Timeouts)})


def _check_reasoning_key(given: str) -> None:
    if given:
        parse_versioned_secrets(KEY_VARIABLE, given)
