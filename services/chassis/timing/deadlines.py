"""Timeouts that are moved far more often than they expire, the time limit of a block, and the clock.

A timer of the event loop costs more than most of what it guards, and hardly ever expires. So each deadline has one
timer, which is left to run; when it expires, it checks whether the deadline has really passed.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Protocol


class Deadline:
    """The deadline of one connection; it may be set and cleared any number of times."""

    __slots__ = ("_loop", "_on_passed", "_timer", "at_s", "is_set")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_passed: Callable[[], object]) -> None:
        self._loop = loop
        self._on_passed: Callable[[], object] | None = on_passed
        self._timer: asyncio.TimerHandle | None = None
        self.is_set = False
        # A time of the event loop. While it is set, it may be put off by assignment.
        self.at_s = 0.0

    def set(self, at_s: float) -> None:
        """Sets it, replacing the previous one."""
        self.at_s = at_s
        self.is_set = True
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._look)

    def clear(self) -> None:
        self.is_set = False

    def close(self) -> None:
        """Clears it for good and drops the callback, which mostly refers back to it."""
        self.is_set = False
        self._on_passed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self.is_set or self._on_passed is None:
            return
        if self._loop.time() < self.at_s:
            self._timer = self._loop.call_at(self.at_s, self._look)
            return
        self.is_set = False
        self._on_passed()


class TimeLimit:
    """Limits a `with` block of the current task: on timeout the task is cancelled, and the block raises `error`. It
    costs a fraction of `asyncio.timeout`, and every chat has two."""

    __slots__ = ("_cancelled_before", "_error", "_has_passed", "_limit_s", "_task", "_timer")

    def __init__(self, limit_s: float, error: Exception) -> None:
        self._limit_s = limit_s
        self._error = error
        self._has_passed = False

    def __enter__(self) -> None:
        # Only tasks can be cancelled.
        self._task: asyncio.Task[object] = asyncio.current_task()  # type: ignore[assignment]
        self._cancelled_before = self._task.cancelling()
        self._timer = self._task.get_loop().call_later(self._limit_s, self._on_passed)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        task = self._task
        # A cancelled task refers to its frames, and through them to this limit.
        del self._task, self._timer
        # If other code cancelled the task as well, that takes precedence.
        if self._has_passed and task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise self._error from None

    def _on_passed(self) -> None:
        self._has_passed = True
        self._task.cancel()


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the time of day, in UTC."""
        ...

    def elapsed_s(self) -> float:
        """Returns seconds since some moment; it never goes back, and counts while the machine is suspended."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    # Not a method of ours: every chat asks for the time some thirty times.
    elapsed_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
