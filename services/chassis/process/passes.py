"""Runs a piece of work again and again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.chassis.telemetry.log import Log

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
