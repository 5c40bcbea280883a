import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from services.chassis.timing.deadlines import Deadline, TimeLimit


class Clockwork:
    """A loop's clock and timers, which go on when they are told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> "Timer":
        self.timers.append(Timer(self, when_s, callback))
        return self.timers[-1]

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in [timer for timer in self.timers if timer.when() <= self.now_s]:
            self.timers.remove(timer)
            timer.callback()


class Timer:
    def __init__(self, clockwork: Clockwork, when_s: float, callback: Callable[[], None]) -> None:
        self._clockwork = clockwork
        self._when_s = when_s
        self.callback = callback

    def when(self) -> float:
        return self._when_s

    def cancel(self) -> None:
        self._clockwork.timers.remove(self)


class Scene:
    def __init__(self) -> None:
        self.clockwork = Clockwork()
        loop: Any = self.clockwork
        self.passed_at_s: list[float] = []
        self.deadline = Deadline(loop, lambda: self.passed_at_s.append(self.clockwork.now_s))

    def set_within(self, limit_s: float) -> None:
        self.deadline.set(self.clockwork.now_s + limit_s)


def test_deadline_passes_once() -> None:
    scene = Scene()
    scene.set_within(10)
    scene.clockwork.go_on(9)
    assert scene.passed_at_s == []
    scene.clockwork.go_on(1)
    scene.clockwork.go_on(100)
    assert scene.passed_at_s == [10]


def test_deadline_may_be_set_again_when_it_has_passed() -> None:
    scene = Scene()
    for times in (1, 2):
        scene.set_within(10)
        scene.clockwork.go_on(10)
        assert len(scene.passed_at_s) == times


def test_deadline_that_was_cleared_does_not_pass() -> None:
    scene = Scene()
    scene.set_within(10)
    scene.deadline.clear()
    scene.clockwork.go_on(100)
    assert scene.passed_at_s == []


def test_deadline_counts_from_when_it_was_last_set() -> None:
    scene = Scene()
    for _ in range(5):
        scene.set_within(10)
        scene.clockwork.go_on(9)
    scene.clockwork.go_on(1)
    assert scene.passed_at_s == [46]


def test_deadline_may_be_put_off_by_assignment() -> None:
    scene = Scene()
    scene.set_within(10)
    scene.deadline.at_s = 20
    scene.clockwork.go_on(10)
    assert scene.passed_at_s == []
    scene.clockwork.go_on(10)
    assert scene.passed_at_s == [20]


def test_earlier_deadline_than_before_is_kept_too() -> None:
    scene = Scene()
    scene.set_within(75)
    scene.set_within(10)
    scene.clockwork.go_on(10)
    assert scene.passed_at_s == [10]


def test_any_number_of_requests_take_one_timer() -> None:
    scene = Scene()
    for _ in range(100):
        scene.set_within(75)
        scene.clockwork.go_on(0.01)
        scene.deadline.clear()
    assert len(scene.clockwork.timers) == 1


def test_deadlines_of_a_loop_share_one_timer() -> None:
    scene = Scene()
    other_at_s: list[float] = []
    loop: Any = scene.clockwork
    other = Deadline(loop, lambda: other_at_s.append(scene.clockwork.now_s))
    scene.set_within(20)
    other.set(10)
    assert len(scene.clockwork.timers) == 1
    scene.clockwork.go_on(10)
    assert (other_at_s, scene.passed_at_s) == ([10], [])
    scene.clockwork.go_on(10)
    assert (other_at_s, scene.passed_at_s) == ([10], [20])


def test_closed_deadline_does_not_pass_and_keeps_no_callback() -> None:
    scene = Scene()
    seen = weakref.ref(scene)
    scene.set_within(10)
    deadline, clockwork = scene.deadline, scene.clockwork
    deadline.close()
    del scene
    gc.collect()
    assert seen() is None
    clockwork.go_on(100)


async def test_real_loop_does_the_same() -> None:
    passed, loop = asyncio.Event(), asyncio.get_running_loop()
    Deadline(loop, passed.set).set(loop.time() + 0.01)
    async with asyncio.timeout(60):
        await passed.wait()


class TooLate(Exception):
    pass


async def test_work_that_takes_too_long_is_ended_with_the_error_it_was_given() -> None:
    with pytest.raises(TooLate), TimeLimit(0.01, TooLate()):
        await asyncio.sleep(60)
    # The task itself goes on as if nothing had happened.
    with TimeLimit(60, TooLate()):
        await asyncio.sleep(0)


async def test_work_that_is_done_in_time_is_left_alone() -> None:
    with TimeLimit(0.01, TooLate()):
        await asyncio.sleep(0)
    with pytest.raises(ValueError), TimeLimit(0.01, TooLate()):  # noqa: PT011
        raise ValueError
    await asyncio.sleep(0.03)


async def test_a_cancelled_task_ends_whatever_the_time() -> None:
    async def work() -> None:
        with TimeLimit(60, TooLate()):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_limit_that_was_kept_leaves_nothing_to_the_collector_of_garbage() -> None:
    error = TooLate()
    seen = weakref.ref(error)
    gc.disable()
    try:
        with TimeLimit(60, error):
            await asyncio.sleep(0)
        del error
        assert seen() is None
    finally:
        gc.enable()
