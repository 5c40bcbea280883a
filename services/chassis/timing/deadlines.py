"""Timeouts that are set far more often than they expire, the time limit of a block, and the clock.

A timer of the event loop costs more than most of what it guards, and hardly ever expires. So a timeout that is set is
an element of a set, and each loop has one timer, for the earliest.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import TracebackType
from typing import Protocol


class _Timeouts:
    """The timeouts of one event loop that are set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        # Accessed by timeouts directly: they are set and cleared too often for a method call each.
        self.running: set[Timeout] = set()
        self.timer_at_s = math.inf

    def wake_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._wake)

    def _wake(self) -> None:
        self._timer, self.timer_at_s = None, math.inf
        now_s = self._loop.time()
        passed = [timeout for timeout in self.running if timeout.at_s <= now_s]
        self.running.difference_update(passed)
        if self.running:
            self.wake_at(min(timeout.at_s for timeout in self.running))
        for timeout in passed:
            timeout.on_passed()


# A process has one event loop.
_timeouts_of = lru_cache(maxsize=1)(_Timeouts)


class Timeout:
    """The base of what is over at a time, unless it is cleared before. It may be set any number of times."""

    __slots__ = ("_timeouts", "at_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timeouts = _timeouts_of(loop)
        # A time of the event loop. While it is set, it may be put off by assignment.
        self.at_s = math.inf

    def set(self, at_s: float) -> None:
        """Sets it, replacing the previous time."""
        self.at_s = at_s
        timeouts = self._timeouts
        timeouts.running.add(self)
        if at_s < timeouts.timer_at_s:
            timeouts.wake_at(at_s)

    def clear(self) -> None:
        # The timer is left alone: moving it each time would cost more than an early wakeup.
        self._timeouts.running.discard(self)

    def on_passed(self) -> None:
        raise NotImplementedError


class Deadline(Timeout):
    """A timeout that calls back."""

    __slots__ = ("_callback",)

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        super().__init__(loop)
        self._callback: Callable[[], object] | None = callback

    def on_passed(self) -> None:
        if self._callback is not None:
            self._callback()

    def close(self) -> None:
        """Clears it for good and drops the callback, which mostly refers back to it."""
        self.clear()
        self._callback = None


class TimeLimit(Timeout):
    """Limits a `with` block of the current task: on timeout the task is cancelled, and the block raises `error`. It
    costs a fraction of `asyncio.timeout`, and every chat has two."""

    __slots__ = ("_cancelled_before", "_error", "_has_passed", "_limit_s", "_task")

    def __init__(self, limit_s: float, error: Exception) -> None:
        self._limit_s = limit_s
        self._error = error
        self._has_passed = False

    def __enter__(self) -> None:
        # Only tasks can be cancelled.
        self._task: asyncio.Task[object] = asyncio.current_task()  # type: ignore[assignment]
        self._cancelled_before = self._task.cancelling()
        loop = self._task.get_loop()
        super().__init__(loop)
        self.set(loop.time() + self._limit_s)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()
        task = self._task
        # A cancelled task refers to its frames, and through them to this limit.
        del self._task
        # If other code cancelled the task as well, that takes precedence.
        if self._has_passed and task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise self._error from None

    def on_passed(self) -> None:
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
