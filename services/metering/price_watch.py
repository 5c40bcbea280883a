"""Follows the price file and the versions that other replicas adopt, so that prices change without a restart."""

import asyncio
from pathlib import Path
from typing import Final

from services.chassis.database.database import Database
from services.chassis.file_stamp import stamp_of
from services.chassis.process.passes import run_passes
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.ledger.prices import PriceFile, Prices, read_prices
from services.metering.store.prices import adopt_prices, read_schedule

EVERY_S: Final = 5.0


class PriceWatch:
    def __init__(self, path: Path, database: Database, prices: Prices, log: Log, registry: Registry) -> None:
        """Watches `path`, which was read into `prices` already."""
        self._path = path
        self._database = database
        self._prices = prices
        self._log = log
        self._stamp = stamp_of(path)
        self._is_valid = True
        valid = "1 if the price file is valid, 0 if the last change of it has a mistake and is not in effect."
        registry.gauge("legato_price_file_valid", valid, lambda: self._is_valid)
        version = "Version of the prices for new requests, without those that are scheduled."
        registry.gauge("legato_price_version", version, lambda: self._prices.current_version)

    async def run(self) -> None:
        """Looks periodically until cancelled."""
        await run_passes(self.look, EVERY_S, self._log, "prices.failed")

    async def look(self) -> None:
        stamp = await asyncio.to_thread(stamp_of, self._path)
        if stamp != self._stamp:
            file = await self._read_file()
            self._is_valid = file is not None
            if file is not None:
                await self._database.write(adopt_prices, file.current, file.scheduled)
            # Only now: a database that was not available is asked again.
            self._stamp = stamp
        found = await self._database.read(read_schedule)
        if self._prices.follow(found):
            self._log.info("prices.changed", price_version=found.current_version)

    async def _read_file(self) -> PriceFile | None:
        try:
            return await asyncio.to_thread(read_prices, self._path)
        except SettingsError as error:
            for mistake in str(error).splitlines():
                self._log.warning("prices.refused", reason=mistake)
            return None
