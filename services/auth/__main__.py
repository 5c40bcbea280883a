"""Runs auth (`python -m services.auth`): accounts, keys and their verification."""

import asyncio

from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceStub
from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from services.auth.audit.rules.retention import AuditRetention
from services.auth.core.peppers import parse_peppers
from services.auth.metrics import show_auth
from services.auth.service import MIGRATIONS, AuthService
from services.auth.settings import AuthSettings
from services.chassis.database.clock import DatabaseClock
from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.settings import load

# Longer than a revocation takes, since its caller waits for it.
STOP_GRACE_S = 3.0


async def main() -> None:
    settings = load(AuthSettings)
    async with serving("auth", settings) as process:
        log, database = process.log, process.open_database(MIGRATIONS)
        clock = DatabaseClock(database, process.clock)
        await clock.set()
        metering = ReplicaChannel("Metering", "metering", process.address_of("metering"), process.certificates, log)
        await metering.start()
        process.opened.push_async_callback(metering.close)
        peppers = parse_peppers(settings.key_peppers)
        outbox, spend_limits = OutboxServiceStub(metering.channel), SpendLimitServiceStub(metering.channel)
        auth = AuthService(
            database, peppers, clock, log, console=settings.console, outbox=outbox, spend_limits=spend_limits
        )
        process.opened.push_async_callback(auth.close)
        kept_days = settings.retention_audit_log_days
        retention = AuditRetention(database, auth.parts.audit, clock, log, kept_days=kept_days)
        on_full = process.full_disks.noting("the copy of the audit log")
        copy = await auth.open_copy(settings.copy_address, settings.audit_copy_lost_after, settings.data, on_full)
        if copy is not None:
            process.in_background(copy.run)
        show_auth(auth, retention, copy, process.registry)
        await auth.record_peppers()
        await auth.encrypt_emails()
        process.in_background(clock.keep_right)
        process.in_background(lambda: auth.notice_loop.run(settings.notice_interval_s))
        if settings.retention_interval_s:
            process.in_background(lambda: retention.run(settings.retention_interval_s))

        async def drain(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            # Closed only after edges could find another replica: without a watch they must verify every request.
            auth.watches.close()

        await process.serve_rpcs(auth.servicers, access=auth.access, drain=drain, grace_s=STOP_GRACE_S)


if __name__ == "__main__":
    run("auth", main)
