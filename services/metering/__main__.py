"""Runs metering (`python -m services.metering`): credit, prices, limits and usage."""

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path

from services.chassis.access_tokens import AccessTokenVerifier
from services.chassis.database.database import open_database
from services.chassis.process import memory
from services.chassis.process.run import run, tracing_to
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.server import RpcServer, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry, show_certificate, show_exchanges
from services.chassis.timing.deadlines import SystemClock
from services.metering.auditor import Auditor
from services.metering.batch import Writer
from services.metering.ledger.prices import read_prices
from services.metering.limits import Limiter, LocalLimiter, UnpaidPrompts
from services.metering.metrics import show_ledger, show_retention, show_shared_limits
from services.metering.price_watch import PriceWatch
from services.metering.retention.passes import Retention
from services.metering.servicers.account_changes import ChangeOutboxServicer
from services.metering.servicers.metering import (
    CreditAdminServicer,
    MeteringServicer,
)
from services.metering.servicers.notices import (
    NoticeOutboxServicer,
    NoticeThresholdServicer,
)
from services.metering.servicers.payments import PaymentBookingServicer
from services.metering.servicers.spend_limits import SpendLimitServicer
from services.metering.servicers.statements import StatementServicer
from services.metering.settings import MeteringSettings
from services.metering.spend_recount import recount_at_start
from services.metering.store.prices import adopt_prices
from services.metering.sweeper import Sweeper

MIGRATIONS = Path(__file__).parent / "migrations"

# With some tens of streams a reserve mostly arrives sooner, and both are one commit and one message. Any operation
# that a client waits for ends the delay.
SETTLEMENT_DELAY_S = 0.05
# With fewer streams, while a chat begins at least so often.
SHARED_DELAY_S = 0.25
# Long enough for a large batch, and a small part of a model's time to first token.
PACE_UNDER_LOAD_S = 0.005
# Operations take milliseconds, unless the database hangs.
DRAIN_S = 3.0
# For calls outside of an exchange.
STOP_GRACE_S = 0.5


async def main() -> None:
    settings = load(MeteringSettings)
    price_file = read_prices(settings.prices)
    log = open_log("metering", debug=settings.debug)
    clock = SystemClock()
    database = open_database("metering", settings.database_url, settings.data)
    async with contextlib.AsyncExitStack() as opened:
        opened.callback(database.close)
        database.prepare(MIGRATIONS, migrates=settings.migrate_at_start)
        adopt = partial(adopt_prices, wanted=price_file.current, scheduled=price_file.scheduled)
        prices = await database.write(adopt)
        registry = new_registry()
        await opened.enter_async_context(serve_operations(settings.metering_metrics_listen, registry, log))
        hold_life_s = settings.stream_life_s + settings.hold_grace_s
        waits = {
            "settlement_delay_s": SETTLEMENT_DELAY_S,
            "shared_delay_s": SHARED_DELAY_S,
            "pace_s": PACE_UNDER_LOAD_S,
        }
        notice_rules = settings.notice_rules
        writer = Writer(database, prices, hold_life_s, log, notice_rules=notice_rules, **waits)
        opened.push_async_callback(writer.close)
        limiter: Limiter = LocalLimiter(clock)
        if settings.valkey_url:
            # Its import takes a third of a second and 12 MB.
            from services.metering.valkey import ValkeyLimiter

            limiter = shared = ValkeyLimiter(settings.valkey_url, LocalLimiter(clock), log, settings.metering_replicas)
            opened.push_async_callback(shared.close)
            await shared.start()
            show_shared_limits(shared, registry)
        tracer = opened.enter_context(tracing_to(settings.otlp_endpoint, "metering", clock, log, registry))
        unpaid_prompts = UnpaidPrompts(settings.unpaid_limit, clock)
        metering = MeteringServicer(database, writer, limiter, settings.default_limits(), log, tracer, unpaid_prompts)
        show_exchanges(registry, {"edge": metering.message_items})
        admin = CreditAdminServicer(database, writer)
        servicers = [
            metering,
            admin,
            SpendLimitServicer(database, writer, log),
            StatementServicer(database, metering.totals),
            PaymentBookingServicer(database, writer),
            NoticeOutboxServicer(database),
            ChangeOutboxServicer(database),
            NoticeThresholdServicer(database, notice_rules),
        ]
        listen = settings.metering_listen or private_listen(settings.data, "metering")
        certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
        show_certificate(registry, certificates)
        server = RpcServer(
            listen,
            servicers,
            log,
            certificates,
            health_listen=settings.metering_health_listen,
            insecure_tcp=settings.insecure_tcp,
            access=AccessCheck(AccessTokenVerifier(settings.access_token_public_keys), lambda: time.time_ns() // 1000),
            console_listen=settings.metering_console_listen,
            console_role=settings.console_role,
        )
        stop = stop_asked()
        await server.start()
        sweeper = Sweeper(database, writer, settings.sweep_interval_s, log)
        show_ledger(writer, sweeper, registry)
        sweeping = asyncio.create_task(sweeper.run())
        opened.callback(sweeping.cancel)
        recounting = asyncio.create_task(recount_at_start(database, log))
        opened.callback(recounting.cancel)
        watching = asyncio.create_task(PriceWatch(settings.prices, database, prices, log, registry).run())
        opened.callback(watching.cancel)
        retention = Retention(database, settings.retention_policy, settings.retention_interval_s, log)
        show_retention(retention, registry)
        # Also without passes: entries of a month without a partition could not be written.
        await retention.try_to_create_partitions()
        if settings.retention_interval_s:
            retaining = asyncio.create_task(retention.run())
            opened.callback(retaining.cancel)
        if settings.audit_interval_s:
            auditor = Auditor(database, settings.audit_interval_s, clock, log, registry)
            auditing = asyncio.create_task(auditor.run())
            opened.callback(auditing.cancel)
        log.info("service.started", listen=listen, price_version=prices.current_version)
        memory.settle()
        await stop.wait()
        await server.announce_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_delay_s + DRAIN_S):
                await metering.drain(settings.drain_delay_s)
        await server.stop(STOP_GRACE_S)
    log.info("service.stopped")


if __name__ == "__main__":
    run("metering", main)
