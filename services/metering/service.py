"""Builds metering from its parts."""

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from services.chassis.database.database import Database
from services.chassis.process.serving import Process
from services.chassis.telemetry.metrics import show_exchanges
from services.metering.audit.auditor import Auditor
from services.metering.audit.sweeper import Sweeper
from services.metering.credit.batch import Writer
from services.metering.credit.price_watch import PriceWatch
from services.metering.credit.prices import Prices
from services.metering.credit.servicers.notices import NoticeThresholdServicer
from services.metering.credit.servicers.outbox import OutboxServicer
from services.metering.credit.servicers.payments import PaymentBookingServicer
from services.metering.credit.servicers.staged_files import StagedFileServicer
from services.metering.credit.unpaid_prompts import UnpaidPrompts
from services.metering.limits.model_shares import LocalModelShares, ModelShareStore
from services.metering.limits.rates import Limiter, LocalLimiter
from services.metering.limits.servicers.model_shares import ModelShareServicer
from services.metering.limits.servicers.spend_limits import SpendLimitServicer
from services.metering.limits.spend_recount import recount_at_start
from services.metering.metrics import show_ledger, show_retention, show_shared_limits
from services.metering.months.passes import Retention
from services.metering.reports.servicers.chat_outcomes import ChatOutcomeServicer
from services.metering.reports.servicers.models import ReportServicer
from services.metering.reports.sums import ReportSums
from services.metering.servicers.credit_admin import CreditAdminServicer
from services.metering.servicers.metering import MeteringServicer
from services.metering.settings import MeteringSettings
from services.metering.statements.servicer import StatementServicer

MIGRATIONS: Final = Path(__file__).parent / "migrations"

# With some tens of streams a reserve mostly arrives sooner, and both are one commit and one message. Any operation
# that a client waits for ends the delay.
SETTLEMENT_DELAY_S: Final = 0.05
# With fewer streams, while a chat begins at least so often.
SHARED_DELAY_S: Final = 0.25
# Long enough for a large batch, and a small part of a model's time to first token.
PACE_UNDER_LOAD_S: Final = 0.005


class MeteringService:
    """The RPCs of metering, and the work that it does beside them."""

    def __init__(
        self, database: Database, prices: Prices, limits: "Limits", settings: MeteringSettings, process: Process
    ) -> None:
        log, registry = process.log, process.registry
        writer = Writer(
            database,
            prices,
            settings.stream_life_s + settings.hold_grace_s,
            log,
            notice_rules=settings.notice_rules,
            settlement_delay_s=SETTLEMENT_DELAY_S,
            shared_delay_s=SHARED_DELAY_S,
            pace_s=PACE_UNDER_LOAD_S,
        )
        process.opened.push_async_callback(writer.close)
        unpaid = UnpaidPrompts(
            settings.unpaid_prompts, settings.unpaid_prompt_tokens, settings.unpaid_prompts_window_s, process.clock
        )
        metering = MeteringServicer(
            database,
            writer,
            limits.limiter,
            settings.default_limits(),
            log,
            process.open_tracer(),
            unpaid,
        )
        show_exchanges(registry, {"edge": metering.message_items})
        self.drain = metering.drain
        self.servicers = [
            metering,
            CreditAdminServicer(database, writer),
            SpendLimitServicer(database, writer, log),
            StatementServicer(database),
            ReportServicer(database),
            PaymentBookingServicer(database, writer),
            OutboxServicer(database),
            NoticeThresholdServicer(database, settings.notice_rules),
            ModelShareServicer(limits.model_shares),
            StagedFileServicer(database),
            ChatOutcomeServicer(database),
        ]
        sweeper = Sweeper(database, writer, settings.sweep_interval_s, log)
        show_ledger(writer, sweeper, registry)
        self.retention = Retention(database, settings, log)
        show_retention(self.retention, registry)
        process.in_background(sweeper.run)
        process.in_background(ReportSums(database, log).run)
        process.in_background(partial(recount_at_start, database, log))
        price_watch = PriceWatch(settings.prices, database, prices, log, registry, shares=settings.shares_prices)
        process.in_background(price_watch.run)
        if settings.retention_interval_s:
            process.in_background(self.retention.run)
        if settings.audit_interval_s:
            process.in_background(Auditor(database, settings.audit_interval_s, process.clock, log, registry).run)


class Limits(NamedTuple):
    """The limits of keys and of models, which all replicas share in Valkey, or one keeps in memory."""

    limiter: Limiter
    model_shares: ModelShareStore


async def open_limits(settings: MeteringSettings, process: Process) -> Limits:
    local = LocalLimiter(process.clock)
    if not settings.valkey_url:
        if settings.shares_prices:
            process.log.warning("limits.local", reason="LEGATO_VALKEY_URL is not set, and there are several replicas")
        return Limits(local, LocalModelShares(process.clock))
    # Its import takes a third of a second and 12 MB.
    from services.metering.limits.valkey import ValkeyLimiter
    from services.metering.limits.valkey_shares import ValkeyModelShares

    replicas, peers = settings.metering_replicas, settings.metering_peers
    shared = ValkeyLimiter(settings.valkey_url, local, process.log, replicas, peers)
    process.opened.push_async_callback(shared.close)
    await shared.start()
    show_shared_limits(shared, process.registry)
    return Limits(shared, ValkeyModelShares(shared, process.clock))
