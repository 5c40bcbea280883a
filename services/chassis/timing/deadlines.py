"""Timeouts that share one timer of the event loop.

A timer for every call and every read costs more than most of what it guards, and hardly ever fires. Here a timeout that
is set is an element of a set; the loop has one timer, for the earliest.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Protocol


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Accessed by deadlines directly: they are set and cleared too often for a method call each.
        self.running: set[Timed] = set()
        self.timer_at_s = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def new(self, on_passed: Callable[[], None]) -> "Deadline":
        """Creates a deadline that is not set yet; it may be set and cleared any number of times."""
        return Deadline(self, on_passed)

    def limit(self, limit_s: float, error: Exception) -> "Limit":
        """Limits a `with` block of the current task: on timeout the task is cancelled, and the block raises `error`."""
        return Limit(self, limit_s, error)

    def now_s(self) -> float:
        return self.loop.time()

    def wake_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at_s = at_s
        self._timer = self.loop.call_at(at_s, self._wake)

    def _wake(self) -> None:
        self._timer, self.timer_at_s = None, math.inf
        now_s = self.loop.time()
        passed = [deadline for deadline in self.running if deadline.at_s <= now_s]
        self.running.difference_update(passed)
        if self.running:
            self.wake_at(min(deadline.at_s for deadline in self.running))
        for deadline in passed:
            deadline.on_passed()


class Timed:
    """Something with a deadline. A `Deadline` calls back; what is made for every call is one itself instead."""

    __slots__ = ("_deadlines", "at_s")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.at_s = math.inf

    def on_passed(self) -> None:
        raise NotImplementedError

    def set(self, at_s: float) -> None:
        """Sets it to a time of `Deadlines.now_s`, replacing the previous one."""
        self.at_s = at_s
        deadlines = self._deadlines
        deadlines.running.add(self)
        if at_s < deadlines.timer_at_s:
            deadlines.wake_at(at_s)

    def set_within(self, limit_s: float) -> None:
        self.set(self._deadlines.loop.time() + limit_s)

    def clear(self) -> None:
        # The timer is left alone: moving it each time would cost more than an early wakeup.
        self._deadlines.running.discard(self)


class Deadline(Timed):
    __slots__ = ("_on_time",)

    def __init__(self, deadlines: Deadlines, on_time: Callable[[], None]) -> None:
        super().__init__(deadlines)
        self._on_time = on_time

    def on_passed(self) -> None:
        self._on_time()

    def close(self) -> None:
        """Clears it for good and drops the callback, which mostly refers back to it."""
        self.clear()
        self._on_time = _do_nothing


def _do_nothing() -> None:
    pass


class Limit(Timed):
    """A timeout for a block. A callback to it, one per chat, would be a reference cycle for the garbage collector."""

    __slots__ = ("_cancelled_before", "_error", "_has_passed", "_limit_s", "_task")

    def __init__(self, deadlines: Deadlines, limit_s: float, error: Exception) -> None:
        super().__init__(deadlines)
        self._limit_s = limit_s
        self._error = error
        self._has_passed = False

    def __enter__(self) -> None:
        # Only tasks can be cancelled.
        self._task: asyncio.Task[object] = asyncio.current_task()  # type: ignore[assignment]
        self._cancelled_before = self._task.cancelling()
        self.set_within(self._limit_s)

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
