"""Follows the price file and the versions that other replicas adopt, so that prices change without a restart."""

import asyncio
from pathlib import Path
from typing import Final
from uuid import uuid4

from services.chassis.database.database import Database
from services.chassis.file_stamp import Stamp, stamp_of
from services.chassis.process.passes import run_passes
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.credit.prices import PriceFile, Prices, read_prices
from services.metering.credit.store.prices import adopt_prices, read_schedule
from services.metering.credit.store.staged_files import PRICES, report_version

EVERY_S: Final = 5.0
# All replicas look within this time.
NOTICE_US: Final = 10_000_000


class PriceWatch:
    def __init__(
        self,
        path: Path,
        database: Database,
        prices: Prices,
        log: Log,
        registry: Registry,
        *,
        shares: bool = False,
    ) -> None:
        """Watches `path`, which is valid. Where replicas share the prices (`shares`), a file is adopted only once all
        replicas have read the same; otherwise, this one was read into `prices` already."""
        self._path = path
        self._database = database
        self._prices = prices
        self._log = log
        self._process_id = uuid4().hex if shares else ""
        self._stamp: Stamp = stamp_of(path)
        self._file: PriceFile | None = read_prices(path) if shares else None
        # Whether the file is still to be adopted.
        self._is_staged = shares
        self._is_valid = True
        valid = "1 if the price file is valid, 0 if the last change of it has a mistake and is not in effect."
        registry.gauge("legato_price_file_valid", valid, lambda: self._is_valid)
        version = "Version of the prices for new requests, without those that are scheduled."
        registry.gauge("legato_price_version", version, lambda: self._prices.current_version)
        if shares:
            staged = (
                "1 for the version of the price file that this replica has read: prices change if all have the same."
            )
            registry.gauge("legato_price_file_info", staged, lambda: {self._file_version: 1}, "version")

    @property
    def _file_version(self) -> str:
        return self._file.version if self._file is not None else ""

    async def run(self) -> None:
        """Looks periodically until cancelled."""
        await run_passes(self.look, EVERY_S, self._log, "prices.failed")

    async def look(self) -> None:
        stamp = await asyncio.to_thread(stamp_of, self._path)
        if stamp != self._stamp:
            self._file = await self._read_file()
            self._stamp, self._is_staged = stamp, self._file is not None
            self._is_valid = self._file is not None
        is_agreed = not self._process_id or await self._database.write(
            report_version, PRICES, self._process_id, self._file_version
        )
        if self._is_staged and self._file is not None and is_agreed:
            notice_us = NOTICE_US if self._process_id else 0
            await self._database.write(adopt_prices, self._file.current, self._file.scheduled, notice_us)
            # Only now: a database that was not available is asked again.
            self._is_staged = False
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
