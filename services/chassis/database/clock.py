"""The database's time, which all processes on one database share."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.timing.deadlines import Clock

ASKED_EVERY_S: Final = 1.0

# The database's time, as an expression, by the name of its dialect.
NOW_US: Final[dict[str, str]] = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
}


def now_us_query(connection: sa.Connection) -> str:
    return f"SELECT {NOW_US[connection.dialect.name]}"


def read_now_us(connection: sa.Connection) -> int:
    cursor = connection.connection.cursor()
    cursor.execute(now_us_query(connection))
    [(now_us,)] = cursor.fetchall()
    return int(now_us)


class DatabaseClock:
    """Estimates the database's time without a query: it is read once a second and extrapolated in between."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # Offset of the database's time from our elapsed seconds.
        self._ahead_s = clock.now().timestamp() - clock.elapsed_s()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.elapsed_s() + self._ahead_s, UTC)

    def elapsed_s(self) -> float:
        return self._clock.elapsed_s()

    async def set(self) -> None:
        """Reads the time."""
        asked_at_s = self._clock.elapsed_s()
        now_us = await self._database.read_in_place(read_now_us)
        # The read happened between request and response; the midpoint is assumed.
        self._ahead_s = now_us / 1e6 - (asked_at_s + self._clock.elapsed_s()) / 2

    async def keep_right(self) -> None:
        """Reads the time every second until cancelled. An outage keeps the last offset."""
        while True:
            await asyncio.sleep(ASKED_EVERY_S)
            with contextlib.suppress(LegatoError):
                await self.set()
