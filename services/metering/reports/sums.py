"""Keeps the statistics of the ledger up to date, beside the chats."""

import asyncio
from typing import Final

from services.chassis.database.database import Database
from services.chassis.database.portions import PAUSE_S
from services.chassis.process.passes import run_passes
from services.chassis.telemetry.log import Log
from services.metering.reports.store.days import PORTION_MOST, SETTLED_AFTER_US, sum_up_portion

INTERVAL_S: Final = 60.0


class ReportSums:
    def __init__(self, database: Database, log: Log, *, pause_s: float = PAUSE_S) -> None:
        self._database = database
        self._log = log
        self._pause_s = pause_s

    async def run(self) -> None:
        await run_passes(self.sum_up, INTERVAL_S, self._log, "report_sums.failed")

    async def sum_up(self, settled_after_us: int = SETTLED_AFTER_US) -> None:
        """Adds all entries that are old enough. Several processes may do so: each portion is added once."""
        while await self._database.write(sum_up_portion, PORTION_MOST, settled_after_us):
            await asyncio.sleep(self._pause_s)
