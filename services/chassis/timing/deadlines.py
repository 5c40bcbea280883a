"""Time limits that share one timer of the event loop.

A timer of its own for every question and every read costs more than most of what it guards, and hardly ever goes off.
Here a limit that is set is a number in a set; the loop has one timer, for the earliest of them.
"""

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import cast


class Deadlines:
    """Of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # For deadlines alone, which are set and cleared too often for a call each.
        self.running: set[_Timed] = set()
        self.timer_at_s = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def new(self, on_passed: Callable[[], None]) -> "Deadline":
        """One that is not set yet; it may be set and cleared any number of times."""
        return Deadline(self, on_passed)

    def limit(self, limit_s: float, error: Exception) -> "Limit":
        """For what the current task does inside of it: it is cancelled when the time is over, and leaves as `error`."""
        return Limit(self, limit_s, error)

    def now_s(self) -> float:
        return self._loop.time()

    def wake_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._wake)

    def _wake(self) -> None:
        self._timer, self.timer_at_s = None, math.inf
        now_s = self._loop.time()
        passed = [deadline for deadline in self.running if deadline.at_s <= now_s]
        self.running.difference_update(passed)
        if self.running:
            self.wake_at(min(deadline.at_s for deadline in self.running))
        for deadline in passed:
            deadline.on_passed()


class _Timed:
    __slots__ = ("_deadlines", "at_s")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.at_s = math.inf

    def on_passed(self) -> None:
        raise NotImplementedError

    def set(self, at_s: float) -> None:
        """To a moment of `Deadlines.now_s`; in place of the one before."""
        self.at_s = at_s
        deadlines = self._deadlines
        deadlines.running.add(self)
        if at_s < deadlines.timer_at_s:
            deadlines.wake_at(at_s)

    def set_within(self, limit_s: float) -> None:
        self.set(self._deadlines.now_s() + limit_s)

    def clear(self) -> None:
        # The timer stays as it is: it is moved less often than limits are set and cleared.
        self._deadlines.running.discard(self)


class Deadline(_Timed):
    __slots__ = ("_on_time",)

    def __init__(self, deadlines: Deadlines, on_time: Callable[[], None]) -> None:
        super().__init__(deadlines)
        self._on_time = on_time

    def on_passed(self) -> None:
        self._on_time()

    def close(self) -> None:
        """It is never set again, and lets go of whoever it would tell: they mostly know it as well."""
        self.clear()
        self._on_time = _do_nothing


def _do_nothing() -> None:
    pass


class Limit(_Timed):
    """There is one for every chat, so it has no deadline that knows it: such a circle would wait for the collector."""

    __slots__ = ("_cancelled_before", "_error", "_has_passed", "_limit_s", "_task")

    def __init__(self, deadlines: Deadlines, limit_s: float, error: Exception) -> None:
        super().__init__(deadlines)
        self._limit_s = limit_s
        self._error = error
        self._has_passed = False

    def __enter__(self) -> None:
        # Only a task can wait, and so take too long.
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelled_before = self._task.cancelling()
        self.set_within(self._limit_s)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()
        task = self._task
        # One that was cancelled knows where it was, and with it this limit.
        del self._task
        # Somebody else may have cancelled the task as well: that counts for more.
        if self._has_passed and task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise self._error from None

    def on_passed(self) -> None:
        self._has_passed = True
        self._task.cancel()
