"""Resolves holds that nobody came back for, and forgets old claims, on the database's clock.

Any number of sweepers may run: what one finds is only a candidate. The rule itself looks again, under the account's
lock, and a settlement that comes later still counts.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.metering.batch import Writer
from services.metering.operations import Sweep, Swept
from services.metering.store.old_claims import forget_claims
from services.metering.store.reports import Overdue, find_overdue

SWEEP_MOST: Final = 256
# Little enough for the batches in between to wait for it unnoticed.
FORGET_MOST: Final = 256


class Sweeper:
    def __init__(self, database: Database, writer: Writer, interval_s: float, log: Log) -> None:
        self._database = database
        self._writer = writer
        self._interval_s = interval_s
        self._log = log
        # Since the process began.
        self.swept = 0

    async def run(self) -> None:
        """Until cancelled. A pass that fails is tried again at the next turn."""
        while True:
            try:
                await self.sweep()
                while await self.forget() == FORGET_MOST:
                    pass
            except Exception as error:
                self._log.failure("sweep.failed", error)
            await asyncio.sleep(self._interval_s)

    async def sweep(self) -> int:
        """One pass over all that are overdue; says how many it swept. One that cannot be swept is passed over until the
        next pass, so that it keeps no others from it."""
        swept = 0
        last: Overdue | None = None
        while True:
            overdue = await self._find(last)
            swept += await self._sweep(overdue)
            if len(overdue) < SWEEP_MOST:
                return swept
            last = overdue[-1]

    async def _find(self, last: Overdue | None) -> list[Overdue]:
        return await self._database.read(lambda connection: find_overdue(connection, SWEEP_MOST, last))

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
        """Forgets some of the claims whose time is over; says how many."""
        return await self._database.write(lambda connection: forget_claims(connection, FORGET_MOST))
