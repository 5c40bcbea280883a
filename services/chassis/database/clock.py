"""The database's own clock: replicas may differ about the time, but not about this one."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.timing.clock import Clock

ASKED_EVERY_S: Final = 1.0

_SQLITE: Final = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
_POSTGRESQL: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


def read_now_us(connection: sa.Connection) -> int:
    cursor = connection.connection.cursor()
    cursor.execute(_SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL)
    [(now_us,)] = cursor.fetchall()
    return int(now_us)


class DatabaseClock:
    """The database's time for whoever cannot wait for a read: asked for once a second, and counted on in between."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # What the database's time is ahead of our elapsed seconds.
        self._ahead_s = clock.now().timestamp() - clock.elapsed_s()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.elapsed_s() + self._ahead_s, UTC)

    def elapsed_s(self) -> float:
        return self._clock.elapsed_s()

    async def set(self) -> None:
        """Ask for the time."""
        asked_at_s = self._clock.elapsed_s()
        now_us = await self._database.read(read_now_us)
        # It was read some time between the question and the answer.
        self._ahead_s = now_us / 1e6 - (asked_at_s + self._clock.elapsed_s()) / 2

    async def keep_right(self) -> None:
        """Until cancelled. A database that is away does not stop the time."""
        while True:
            await asyncio.sleep(ASKED_EVERY_S)
            with contextlib.suppress(LegatoError):
                await self.set()
