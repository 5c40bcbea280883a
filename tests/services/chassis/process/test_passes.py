"""Work that is repeated."""

import asyncio
from collections.abc import Callable

from services.chassis.process.passes import run_passes
from services.chassis.telemetry.log import Log


async def test_pass_that_fails_is_logged_and_followed_by_the_next(log: Log, log_text: Callable[[], str]) -> None:
    passes: list[int] = []
    is_second = asyncio.Event()

    async def run_pass() -> None:
        passes.append(len(passes))
        if len(passes) == 1:
            raise ValueError("secret")
        is_second.set()

    running = asyncio.create_task(run_passes(run_pass, 0.0, log, "work.failed"))
    await is_second.wait()
    running.cancel()
    assert log_text().count('"work.failed"') == 1
    assert "secret" not in log_text()
