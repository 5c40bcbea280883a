"""Resolves expired holds and deletes old claims, by the database's clock.

Any number of sweepers may run: what one finds is only a candidate. The rule checks again, under the account's lock, and
a later settlement still counts.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.credit.batch import Writer
from services.metering.credit.records import Sweep, Swept
from services.metering.credit.store.balances import Overdue, find_overdue
from services.metering.credit.store.batches import forget_claims

SWEEP_MOST: Final = 256
# Small enough for batches in between not to be delayed noticeably.
FORGET_MOST: Final = 256
# Claims live for a day.
FORGET_EVERY_S: Final = 60.0


class Sweeper:
    def __init__(self, database: Database, writer: Writer, interval_s: float, log: Log) -> None:
        self._database = database
        self._writer = writer
        self._interval_s = interval_s
        self._log = log
        self._clock = SystemClock()
        # Since the process started.
        self.swept = 0

    async def run(self) -> None:
        """Sweeps periodically until cancelled. A pass that fails is retried at the next interval."""
        forget_at_s = 0.0
        while True:
            try:
                await self.sweep()
                if self._clock.elapsed_s() >= forget_at_s:
                    while await self.forget() == FORGET_MOST:
                        pass
                    forget_at_s = self._clock.elapsed_s() + FORGET_EVERY_S
            except Exception as error:
                self._log.failure("sweep.failed", error)
            await asyncio.sleep(self._interval_s)

    async def sweep(self) -> int:
        """Sweeps all overdue holds once; returns how many. One that cannot be swept is skipped until the next pass, so
        that it does not block others."""
        swept = 0
        last: Overdue | None = None
        while True:
            overdue = await self._database.read_in_place(find_overdue, SWEEP_MOST, last)
            swept += await self._sweep(overdue)
            if len(overdue) < SWEEP_MOST:
                return swept
            last = overdue[-1]

    async def _sweep(self, overdue: Sequence[Overdue]) -> int:
        sweeps = [
            self._writer.submit(Sweep(hold.request_id, hold.account_id), lambda answer: answer) for hold in overdue
        ]
        outcomes = await asyncio.gather(*sweeps, return_exceptions=True)
        swept = 0
        for hold, outcome in zip(overdue, outcomes, strict=True):
            if isinstance(outcome, Swept) and outcome.swept:
                swept += 1
                self._log.warning(
                    "hold.swept",
                    request_id=hold.request_id,
                    account_id=hold.account_id,
                    cost_nanos=outcome.charged_nanos,
                    loss_nanos=outcome.loss_bound_nanos,
                )
            elif isinstance(outcome, BaseException) and not isinstance(outcome, LegatoError):
                raise outcome
        self.swept += swept
        return swept

    async def forget(self) -> int:
        """Deletes some of the expired claims; returns how many."""
        return await self._database.write(forget_claims, FORGET_MOST)
