"""Metering's settings, each read from `LEGATO_` and its name in capitals."""

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from services.chassis.access_tokens import check_public_keys
from services.chassis.load.gcra import Rate
from services.chassis.money import LARGEST_BOOKING_NANOS, parse_usd
from services.chassis.process.settings import ServiceSettings
from services.chassis.rpc.replicas import parse_endpoints
from services.chassis.settings import (
    HttpAddress,
    OperationsListen,
    PostgresAddress,
    Seconds,
    SecondsOrZero,
    SettingsError,
    check_all,
)
from services.metering.credit.ledger.notices import NoticeRules
from services.metering.limits.rates import LARGEST_BURST, RateLimits, token_rate
from services.rules.largest_limits import LARGEST_LIMITS
from services.rules.residency import DataStore, keep_in_canada

_RequestRate = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_LIMITS["requests_per_minute"])]
_Burst = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BURST)]
_TokenRateOrNone = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["tokens_per_minute"])]
_ConcurrencyOrNone = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LIMITS["concurrent_requests"])]
_Replicas = Annotated[int, msgspec.Meta(ge=1, le=1000)]
# The forms that the client accepts.
_ValkeyAddress = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^unix://\S+$|^rediss?://[^\s/?#]*?(:[0-9]{1,5})?([/?]\S*)?$",
        description="redis://HOST:PORT, rediss://HOST:PORT or unix://PATH",
    ),
]


class MeteringSettings(ServiceSettings, frozen=True, kw_only=True):
    # The regions of the folder, the database and the shared limits, which must be in Canada.
    data_region: str = ""
    database_region: str = ""
    valkey_region: str = ""
    # PostgreSQL; empty: a SQLite file in `data`.
    database_url: PostgresAddress = ""
    # Off if `legato migrate` does it before a new version's services start.
    migrate_at_start: bool = True
    # Empty: a socket in `data`.
    metering_listen: str = ""
    # Address of health checks, for clients without a certificate.
    metering_health_listen: str = ""
    # The collector of traces, http://HOST:PORT; empty: no tracing.
    otlp_endpoint: HttpAddress = ""
    # A unix socket for a console.
    metering_console_listen: str = ""
    # The file in the checkout, whatever the working directory.
    prices: Path = Path(__file__).resolve().parents[2] / "prices.toml"
    # Shared limits; empty: each replica keeps its own.
    valkey_url: _ValkeyAddress = ""
    # The least number of replicas. The shared limits count the actual one, but only after a while.
    metering_replicas: _Replicas = 1
    # HOST:PORT that resolves to all replicas, whose number is then counted while the shared limits are away.
    metering_peers: str = ""
    requests_per_minute: _RequestRate = 3_000
    request_burst: _Burst = 200
    # 0: unlimited.
    tokens_per_minute: _TokenRateOrNone = 0
    concurrent_requests: _ConcurrencyOrNone = 0
    # Once an account's clients have left this many prompts unpaid, with this many tokens in total, within this window,
    # further ones are charged. 0: never.
    unpaid_prompts: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    unpaid_prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 30_000
    unpaid_prompts_window_s: Seconds = 600.0
    # Maximum duration of a stream, which the edge ends then, counted from before it reserved.
    stream_life_s: Seconds = 3_600.0
    # Margin for clock drift and a stalled edge, before a hold is swept.
    hold_grace_s: Seconds = 60.0
    sweep_interval_s: Seconds = 1.0
    # 0: never.
    audit_interval_s: SecondsOrZero = 300.0
    # The pause between two passes that close months and prune; 0: never.
    retention_interval_s: SecondsOrZero = 3_600.0
    # Counters of a month are final two days after its end.
    retention_close_after_days: Annotated[int, msgspec.Meta(ge=3, le=365)] = 5
    # How long settled holds, entries and hourly usage are kept; 0: for ever.
    retention_holds_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 90
    retention_ledger_months: Annotated[int, msgspec.Meta(ge=0, le=1_200)] = 0
    retention_usage_months: Annotated[int, msgspec.Meta(ge=0, le=1_200)] = 0
    # A folder for entries that are pruned; empty: they are deleted.
    retention_archive: Path | None = None
    # Owners get a notice when a balance falls below this many dollars, unless the account has its own threshold, and
    # when this part of a spend limit is spent. 0: never.
    low_balance_usd: str = "1"
    spend_limit_near_percent: Annotated[int, msgspec.Meta(ge=0, le=99)] = 80
    # Address of the metrics for Prometheus, over HTTP; empty: not served.
    metering_metrics_listen: OperationsListen = ""

    @property
    def stores(self) -> list[DataStore]:
        return [
            DataStore("DATA", self.data_region),
            DataStore("DATABASE", self.database_region, self.database_url),
            DataStore("VALKEY", self.valkey_region, self.valkey_url),
        ]

    def check(self) -> None:
        check_all(
            partial(keep_in_canada, self.stores),
            partial(check_public_keys, self.access_token_public_keys),
            partial(parse_endpoints, self.metering_peers),
            lambda: self.notice_rules,
        )

    @property
    def shares_prices(self) -> bool:
        """Returns whether there are other replicas, which have to have the same price file."""
        return self.metering_replicas > 1 or bool(self.metering_peers)

    @property
    def notice_rules(self) -> NoticeRules:
        try:
            low_balance_nanos = parse_usd(self.low_balance_usd)
        except ValueError as error:
            raise SettingsError(f"LEGATO_LOW_BALANCE_USD: {error}") from None
        if not 0 <= low_balance_nanos <= LARGEST_BOOKING_NANOS:
            raise SettingsError("LEGATO_LOW_BALANCE_USD: must not be negative, and at most a million dollars")
        return NoticeRules(low_balance_nanos, self.spend_limit_near_percent)

    def default_limits(self) -> RateLimits:
        """Returns the limits of a key without its own, and whose account has none either."""
        return RateLimits(
            Rate(self.requests_per_minute, self.request_burst),
            token_rate(self.tokens_per_minute) if self.tokens_per_minute else None,
            self.concurrent_requests or None,
        )
