"""What can be set, each by `LEGATO_` and its name in capitals."""

from pathlib import Path
from typing import Annotated

import msgspec

from services.chassis.load.gcra import Rate
from services.chassis.load.limits import LARGEST_LIMITS
from services.chassis.residency import DataStore, keep_in_canada
from services.chassis.settings import HostAndPort, HttpAddress, PostgresAddress, Seconds, SecondsOrZero
from services.metering.limits import LARGEST_BURST, RateLimits, token_rate
from services.metering.unpaid import UnpaidLimit

_RequestRate = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_LIMITS["requests_per_minute"])]
_Burst = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BURST)]
_TokenRateOrNone = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["tokens_per_minute"])]
_ConcurrencyOrNone = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["concurrent_requests"])]
_Replicas = Annotated[int, msgspec.Meta(ge=1, le=1000)]
# As its client takes them.
_ValkeyAddress = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^unix://\S+$|^rediss?://[^\s/?#]*?(:[0-9]{1,5})?([/?]\S*)?$",
        description="redis://HOST:PORT, rediss://HOST:PORT or unix://PATH",
    ),
]


class MeteringSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    # Where the folder, the database and the shared limits lie; what they hold may not lie outside Canada.
    data_region: str = ""
    database_region: str = ""
    valkey_region: str = ""
    # PostgreSQL; without it, a SQLite file in `data`.
    database_url: PostgresAddress = ""
    # Off where `legato migrate` does it, before services of a new version start.
    migrate_at_start: bool = True
    # Without it, a socket in `data`.
    metering_listen: str = ""
    # Where health alone is told, to those without a certificate.
    metering_health_listen: str = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # How long a process that is asked to end takes new calls all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    # The collector that traces are brought to, http://HOST:PORT; without it, none are made.
    otlp_endpoint: HttpAddress = ""
    debug: bool = False
    # The file in the checkout, wherever the process was started.
    prices: Path = Path(__file__).resolve().parents[2] / "prices.toml"
    # Shared limits; without it, each replica keeps its own.
    valkey_url: _ValkeyAddress = ""
    # How many replicas there are at least. The shared limits know how many there really are, but not at once.
    metering_replicas: _Replicas = 1
    requests_per_minute: _RequestRate = 3_000
    request_burst: _Burst = 200
    # 0: not limited.
    tokens_per_minute: _TokenRateOrNone = 0
    concurrent_requests: _ConcurrencyOrNone = 0
    # So many prompts that clients of an account left unpaid, of so many tokens together, within so long: the next ones
    # are charged. 0: never.
    unpaid_prompts: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    unpaid_prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 30_000
    unpaid_prompts_window_s: Seconds = 600.0
    # A stream lives this long at most: the edge ends it then, counted from before it reserved.
    stream_life_s: Seconds = 3_600.0
    # What clocks that run unevenly and a stalled edge may need beyond that, before a hold is swept.
    hold_grace_s: Seconds = 60.0
    sweep_interval_s: Seconds = 1.0
    # 0: never.
    audit_interval_s: SecondsOrZero = 300.0
    # Where metrics are served to Prometheus over HTTP; without it they are not.
    metering_metrics_listen: HostAndPort = ""

    @property
    def stores(self) -> list[DataStore]:
        return [
            DataStore("DATA", self.data_region),
            DataStore("DATABASE", self.database_region, self.database_url),
            DataStore("VALKEY", self.valkey_region, self.valkey_url),
        ]

    def check(self) -> None:
        keep_in_canada(self.stores)

    @property
    def unpaid_limit(self) -> UnpaidLimit:
        return UnpaidLimit(self.unpaid_prompts, self.unpaid_prompt_tokens, self.unpaid_prompts_window_s)

    def default_limits(self) -> RateLimits:
        """Of a key that has none of its own, and whose account has none either."""
        return RateLimits(
            Rate(self.requests_per_minute, self.request_burst),
            token_rate(self.tokens_per_minute) if self.tokens_per_minute else None,
            self.concurrent_requests or None,
        )
