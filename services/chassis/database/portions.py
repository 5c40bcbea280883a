"""Regular passes that delete or rewrite many rows, a portion at a time, so that no writer in between waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log

# Written in milliseconds.
PORTION_MOST: Final = 200
PAUSE_S: Final = 0.02
FIRST_AFTER_S: Final = 30.0


async def run_passes(
    run_pass: Callable[[], Awaitable[object]],
    interval_s: float,
    log: Log,
    failed: str = "retention.failed",
    first_after_s: float = FIRST_AFTER_S,
) -> None:
    """Runs a pass at each interval until cancelled. One that fails is logged as `failed`, and retried at the next."""
    await asyncio.sleep(min(first_after_s, interval_s))
    while True:
        try:
            await run_pass()
        except Exception as error:
            log.failure(failed, error)
        await asyncio.sleep(interval_s)


async def delete_in_portions(
    database: Database, delete: Callable[[Any, int], int], note: Callable[[int], None], pause_s: float = PAUSE_S
) -> None:
    """Calls `delete` with a connection and the most rows to delete, each time in a transaction of its own, until it
    returns 0; `note` gets the number of each portion."""
    while deleted := await database.write(delete, PORTION_MOST):
        note(deleted)
        await asyncio.sleep(pause_s)
