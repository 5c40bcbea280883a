"""Records the hour in which a key was last used, as callers report it with their pings.

Reporting never waits. Reports during a write share the next one.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

from services.auth.checks import KEYS_AT_ONCE_MOST, is_id
from services.auth.records.times import hour_of, to_micros
from services.auth.store.keys import note_uses
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# Bounds what is kept while the database is unavailable; more is not worth the memory.
WAITING_MOST: Final = 100_000


class KeyUses:
    def __init__(self, database: Database, clock: Clock, log: Log) -> None:
        self._database = database
        self._clock = clock
        self._log = log
        self._waiting: set[str] = set()
        self._can_write = True
        self._writing: asyncio.Task[None] | None = None

    def note(self, key_ids: Sequence[str]) -> None:
        if len(self._waiting) < WAITING_MOST:
            self._waiting.update(filter(is_id, key_ids))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Returns when the reported uses are written, or a write has failed."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        """Writes the reported uses; after a failure they are kept until the next report."""
        while self._waiting:
            key_ids = list(islice(self._waiting, KEYS_AT_ONCE_MOST))
            hour_us = hour_of(to_micros(self._clock.now()))
            self._waiting.difference_update(key_ids)
            try:
                await self._note(key_ids, hour_us)
            except Exception as error:
                self._waiting.update(key_ids)
                if self._can_write:
                    # Once per outage.
                    self._log.failure("key_uses.not_written", error)
                self._can_write = False
                return
            self._can_write = True

    async def _note(self, key_ids: list[str], hour_us: int) -> None:
        await self._database.write(lambda connection: note_uses(connection, key_ids, hour_us))
