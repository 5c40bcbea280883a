"""Tells metering once a second what running answers have delivered, for the case that this machine is lost."""

import asyncio
from typing import Final

from edge.billing.journal import OPEN, Journal
from edge.billing.metering import Metering
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log

EVERY_S: Final = 1.0


class Checkpoints:
    def __init__(self, journal: Journal, metering: Metering, log: Log) -> None:
        self._journal = journal
        self._metering = metering
        self._log = log
        # By request: how many tokens of output were told.
        self._told: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.report()
            except LegatoError:
                # Metering is away. The next one says the same, and more.
                pass
            except Exception as error:
                self._log.failure("checkpoint.failed", error)

    async def report(self) -> None:
        # Before the mark, nobody can tell whether the first count was delivered.
        running = [slot for slot in self._journal.taken.values() if slot.kind == OPEN and slot.marked]
        grown = [slot for slot in running if slot.completion_tokens != self._told.get(slot.request_id)]
        telling = {slot.request_id: slot.completion_tokens for slot in running}
        if grown:
            await self._metering.checkpoint(grown)
            failpoints.hit("edge.checkpointed")
        self._told = telling
