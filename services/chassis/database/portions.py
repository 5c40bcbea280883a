"""Deletes many rows a portion at a time, so that no writer in between waits."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from services.chassis.database.database import Database

# Written in milliseconds.
PORTION_MOST: Final = 200
PAUSE_S: Final = 0.02


async def delete_in_portions(
    database: Database, delete: Callable[[Any, int], int], record: Callable[[int], None], pause_s: float = PAUSE_S
) -> None:
    """Calls `delete` with a connection and the most rows to delete, each time in a transaction of its own, until it
    returns 0; `record` gets the number of each portion."""
    while deleted := await database.write(delete, PORTION_MOST):
        record(deleted)
        await asyncio.sleep(pause_s)
