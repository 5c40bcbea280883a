"""`python -m services.metering`"""

import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path

import uvloop

from services.chassis import lifeline
from services.chassis.clock import SystemClock
from services.chassis.database import open_database
from services.chassis.log import open_log
from services.chassis.server import Server, wait_for_stop
from services.chassis.settings import SettingsError, load
from services.metering.batch import Writer
from services.metering.limits import LocalLimiter, Rate
from services.metering.prices import read_prices
from services.metering.servicer import (
    CreditAdminServicer,
    MeteringServicer,
    register_credit_admin,
    register_metering,
)
from services.metering.settings import MeteringSettings
from services.metering.store.price_versions import adopt_prices
from services.metering.sweeper import Sweeper
from services.metering.valkey import ValkeyLimiter

MIGRATIONS = Path(__file__).parent / "migrations"

STOP_GRACE_S = 10.0


async def serve(settings: MeteringSettings) -> None:
    log = open_log("metering", debug=settings.debug)
    clock = SystemClock()
    file_prices = read_prices(settings.prices)
    listen = settings.metering_listen or _socket_in(settings.data)
    database = open_database("metering", settings.database_url, settings.data)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(database.close)
        database.migrate(MIGRATIONS)
        prices = await database.write(partial(adopt_prices, wanted=file_prices))
        writer = Writer(database, prices, settings.stream_life_s + settings.hold_grace_s, log)
        stack.push_async_callback(writer.close)
        limiter: LocalLimiter | ValkeyLimiter = LocalLimiter(clock)
        if settings.valkey_url:
            limiter = ValkeyLimiter(settings.valkey_url, LocalLimiter(clock), clock, log)
            stack.push_async_callback(limiter.close)
        rate = Rate(settings.requests_per_minute, settings.request_burst)
        servicer = MeteringServicer(database, writer, limiter, rate, log)
        admin = CreditAdminServicer(database, writer)
        server = Server(
            listen,
            [partial(register_metering, servicer), partial(register_credit_admin, admin)],
            log,
            insecure_tcp=settings.insecure_tcp,
        )
        sweeping = asyncio.create_task(Sweeper(database, writer, settings.sweep_interval_s, log).run())
        stack.callback(sweeping.cancel)
        await server.start()
        log.info("metering.ready", listen=listen, price_version=prices.current_version)
        await wait_for_stop()
        await _stop(server, servicer)
        log.info("metering.stopped")


async def _stop(server: Server, servicer: MeteringServicer) -> None:
    """Exchanges never end by themselves, so first their calls do."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_GRACE_S):
            await servicer.drain()
    await server.stop(0.5)


def _socket_in(data: Path) -> str:
    folder = data.resolve() / "run"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"unix:{folder / 'metering.sock'}"


def main() -> None:
    lifeline.hold()
    try:
        uvloop.run(serve(load(MeteringSettings)))
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
