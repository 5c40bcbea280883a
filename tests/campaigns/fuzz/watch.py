"""Watches an event loop and a process: processor time a turn, and memory at its highest.

Processor time of the thread, not the time of day: so a busy machine changes nothing.
"""

import asyncio
import gc
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_CLEAR_PEAK: Final = "5"


class LoopWatch:
    """The longest turn of the running loop since it was last asked."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    def take_longest_s(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    @contextmanager
    def watching(self) -> Iterator[None]:
        loop: Any = asyncio.get_running_loop()
        run_once: Callable[[], None] = loop._run_once

        def run_once_timed() -> None:
            began_s = time.thread_time()
            run_once()
            self._longest_s = max(self._longest_s, time.thread_time() - began_s)

        # What others left is not looked through for garbage, as in a process that serves; nor later: tests/conftest.py.
        gc.collect()
        gc.freeze()
        loop._run_once = run_once_timed
        try:
            yield
        finally:
            del loop._run_once


class MemoryWatch:
    """Measures how far the process grew since the beginning."""

    def __init__(self) -> None:
        # Where the kernel does not let the peak be forgotten, all that is known is what is taken in the end.
        self.sees_peaks = False
        with suppress(OSError):
            _CLEAR.write_text(_CLEAR_PEAK)
            self.sees_peaks = True
        self._before_bytes = _bytes_in("VmRSS")

    def most_growth_bytes(self) -> int:
        return max(0, _bytes_in("VmHWM" if self.sees_peaks else "VmRSS") - self._before_bytes)


def _bytes_in(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
