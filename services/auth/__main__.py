"""`python -m services.auth`: accounts, keys, and whose key it is."""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from services.auth.keys import parse_peppers
from services.auth.metrics import show_auth
from services.auth.service import MIGRATIONS, Auth
from services.chassis import memory, process
from services.chassis.certificates import open_certificates
from services.chassis.clock import SystemClock
from services.chassis.database import open_database
from services.chassis.database_clock import DatabaseClock
from services.chassis.log import open_log
from services.chassis.metrics import new_registry, show_certificate
from services.chassis.operations import serve_operations
from services.chassis.residency import Store, keep_in_canada
from services.chassis.server import Server, private_listen, stop_asked
from services.chassis.settings import HostAndPort, SecondsOrZero, load

# Longer than a revocation takes to hold everywhere, which whoever asked for it waits for.
STOP_GRACE_S = 3.0


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    key_peppers: str
    data: Path = Path(".legato")
    # Where the folder and the database lie; what they hold may not lie outside Canada.
    data_region: str = ""
    database_url: str = ""
    database_region: str = ""
    # Off where `legato migrate` does it, before services of a new version start.
    migrate_at_start: bool = True
    auth_listen: str = ""
    # Where health alone is told, to those without a certificate.
    auth_health_listen: str = ""
    # Where metrics are served to Prometheus over HTTP; without it they are not.
    auth_metrics_listen: HostAndPort = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # How long a process that is asked to end takes new calls all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    debug: bool = False

    @property
    def stores(self) -> list[Store]:
        return [Store("DATA", self.data_region), Store("DATABASE", self.database_region, self.database_url)]


async def main() -> None:
    settings = load(AuthSettings)
    keep_in_canada(settings.stores)
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
        auth = Auth(database, peppers, clock, log)
        show_auth(auth, registry)
        listen = settings.auth_listen or private_listen(settings.data, "auth")
        certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
        show_certificate(registry, certificates)
        server = Server(
            listen,
            auth.registrations,
            log,
            certificates,
            health_listen=settings.auth_health_listen,
            insecure_tcp=settings.insecure_tcp,
        )
        stop = stop_asked()
        keeping_right = asyncio.create_task(clock.keep_right())
        opened.callback(keeping_right.cancel)
        await auth.note_peppers()
        await server.start()
        log.info("service.started", listen=listen)
        memory.settle()
        await stop.wait()
        await server.leave()
        await asyncio.sleep(settings.drain_delay_s)
        # Until now edges could find another: without a watch they would have to ask about every single request.
        auth.watches.end()
        await server.stop(STOP_GRACE_S)
        await auth.key_uses.written()
        log.info("service.stopped")


if __name__ == "__main__":
    process.run("auth", main)
