"""Runs metering (`python -m services.metering`): credit, prices, limits and usage."""

from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.settings import load
from services.metering.credit.prices import read_prices
from services.metering.credit.store.prices import open_prices
from services.metering.service import MIGRATIONS, MeteringService, open_limits
from services.metering.settings import MeteringSettings

# Operations take milliseconds, unless the database hangs.
DRAIN_S = 3.0
# For calls outside of an exchange.
STOP_GRACE_S = 0.5


async def main() -> None:
    settings = load(MeteringSettings)
    price_file = read_prices(settings.prices)
    async with serving("metering", settings) as process:
        database = process.open_database(MIGRATIONS)
        prices = await database.write(open_prices, price_file, settings.shares_prices)
        metering = MeteringService(database, prices, await open_limits(settings, process), settings, process)
        # Also without passes: entries of a month without a partition could not be written.
        await metering.retention.try_to_create_partitions()
        await process.serve_rpcs(
            metering.servicers,
            drain=metering.drain,
            drain_s=DRAIN_S,
            grace_s=STOP_GRACE_S,
            price_version=prices.current_version,
        )


if __name__ == "__main__":
    run("metering", main)
