"""Gives the edge and the router of a service a time that a test moves: see `moved_clock.py`.

Python imports this when it starts, because the folder is in PYTHONPATH. Only the standard library is needed, and both
processes have their modules by the time that their event loop begins.
"""

import asyncio
import mmap
import os
import selectors
import sys
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "PYTHON_MOVED_TIME"
# Whose time is moved, by their place in the file, after the time itself.
PROCESSES: Final = {"edge": 1, "services.router": 2}
SIZE_BYTES: Final = 8 * (1 + len(PROCESSES))
# How late a process may be to notice that its time was moved.
POLL_S: Final = 0.003


class _MovedSelector(selectors.DefaultSelector):
    """Ends a wait when the time was moved, and says so when everything due by then has run."""

    def __init__(self, times: "memoryview[float]", place: int) -> None:
        super().__init__()
        self._times = times
        self._place = place
        self._seen_s = -1.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ahead_s = self._times[0]
        if timeout != 0 and ahead_s == self._seen_s:
            # A whole turn of the loop since, and nothing is left to run.
            self._times[self._place] = ahead_s
        self._seen_s = ahead_s
        ends_at_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = POLL_S if ends_at_s is None else min(POLL_S, ends_at_s - time.monotonic())
            ready = super().select(max(0.0, left_s))
            if ready or left_s < POLL_S or self._times[0] != ahead_s:
                return ready


class _MovedLoop(asyncio.SelectorEventLoop):
    def __init__(self, times: "memoryview[float]", place: int) -> None:
        self._times = times
        super().__init__(_MovedSelector(times, place))

    def time(self) -> float:
        return super().time() + self._times[0]


def _run_in(times: "memoryview[float]", place: int, main: Coroutine[Any, Any, None]) -> None:
    deadlines = sys.modules["services.chassis.timing.deadlines"]
    deadlines.SystemClock.elapsed_s = staticmethod(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + times[0])
    # Heartbeats between processes would have to keep up with the moved time.
    for side in ("client", "server"):
        exchange = sys.modules.get(f"services.chassis.exchange.{side}")
        if exchange is not None:
            exchange.LOST_SIGNS = sys.maxsize  # type: ignore[attr-defined]
            exchange.SILENT_SIGNS = sys.maxsize  # type: ignore[attr-defined]
    with asyncio.Runner(loop_factory=lambda: _MovedLoop(times, place)) as runner:
        runner.run(main)


def _move_time(file: Path, place: int) -> None:
    import uvloop

    with file.open("r+b") as opened:
        times = memoryview(mmap.mmap(opened.fileno(), SIZE_BYTES)).cast("d")
    uvloop.run = partial(_run_in, times, place)  # type: ignore[assignment]


_module = sys.orig_argv[-1]
if VARIABLE in os.environ and _module in PROCESSES:
    _move_time(Path(os.environ[VARIABLE]), PROCESSES[_module])
