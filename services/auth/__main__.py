"""Runs auth (`python -m services.auth`): accounts, keys and their verification."""

import asyncio
import contextlib

from services.auth.audit.retention import AuditRetention
from services.auth.metrics import show_auth
from services.auth.notices.metering_outbox import MeteringOutbox
from services.auth.peppers import parse_peppers
from services.auth.service import MIGRATIONS, AuthService
from services.auth.settings import AuthSettings
from services.chassis.database.clock import DatabaseClock
from services.chassis.database.database import open_database
from services.chassis.process import memory
from services.chassis.process.run import run
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.server import RpcServer, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry, show_certificate
from services.chassis.timing.deadlines import SystemClock

# Longer than a revocation takes, since its caller waits for it.
STOP_GRACE_S = 3.0


async def main() -> None:
    settings = load(AuthSettings)
    peppers = parse_peppers(settings.key_peppers)
    log = open_log("auth", debug=settings.debug)
    database = open_database("auth", settings.database_url, settings.data)
    async with contextlib.AsyncExitStack() as opened:
        opened.callback(database.close)
        database.prepare(MIGRATIONS, migrates=settings.migrate_at_start)
        registry = new_registry()
        await opened.enter_async_context(serve_operations(settings.auth_metrics_listen, registry, log))
        clock = DatabaseClock(database, SystemClock())
        await clock.set()
        listen = settings.auth_listen or private_listen(settings.data, "auth")
        certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
        outbox = MeteringOutbox(settings.metering_address or private_listen(settings.data, "metering"), certificates)
        opened.push_async_callback(outbox.close)
        auth = AuthService(database, peppers, clock, log, console=settings.console, outbox=outbox)
        retention = AuditRetention(database, auth.audit, clock, log, kept_days=settings.retention_audit_log_days)
        show_auth(auth, retention, registry)
        show_certificate(registry, certificates)
        server = RpcServer(
            listen,
            auth.servicers,
            log,
            certificates,
            health_listen=settings.auth_health_listen,
            insecure_tcp=settings.insecure_tcp,
            access=auth.access,
            console_listen=settings.auth_console_listen,
            console_role=settings.console_role,
        )
        stop = stop_asked()
        keeping_right = asyncio.create_task(clock.keep_right())
        opened.callback(keeping_right.cancel)
        await auth.note_peppers()
        await auth.encrypt_emails()
        await server.start()
        delivering = asyncio.create_task(auth.notice_loop.run(settings.notice_interval_s))
        opened.callback(delivering.cancel)
        if settings.retention_interval_s:
            retaining = asyncio.create_task(retention.run(settings.retention_interval_s))
            opened.callback(retaining.cancel)
        log.info("service.started", listen=listen)
        memory.settle()
        await stop.wait()
        await server.announce_shutdown()
        await asyncio.sleep(settings.drain_delay_s)
        # Closed only after edges could find another replica: without a watch they must verify every request.
        auth.watches.close()
        await server.stop(STOP_GRACE_S)
        delivering.cancel()
        await auth.key_uses.written()
        await auth.key_networks.written()
        auth.webhook_client.close()
        await auth.mail.close()
        log.info("service.stopped")


if __name__ == "__main__":
    run("auth", main)
