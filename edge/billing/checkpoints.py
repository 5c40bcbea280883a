"""Reports the progress of running answers to metering, so that those of a lost machine can be settled."""

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
        # Output tokens reported so far, by request.
        self._reported: dict[str, int] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.report()
            except LegatoError:
                # Metering is down. The next checkpoint reports the same, and more.
                pass
            except Exception as error:
                self._log.failure("checkpoint.failed", error)

    async def report(self) -> None:
        # Without the mark, it is unknown whether the first count was delivered.
        running = [slot for slot in self._journal.taken.values() if slot.kind == OPEN and slot.marked]
        grown = [slot for slot in running if slot.completion_tokens != self._reported.get(slot.request_id)]
        current = {slot.request_id: slot.completion_tokens for slot in running}
        if grown:
            await self._metering.checkpoint(grown)
            failpoints.hit("edge.checkpointed")
        self._reported = current
