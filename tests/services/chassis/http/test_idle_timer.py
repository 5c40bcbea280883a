"""A connection's waits, without a timer for each thing."""

import asyncio
from collections.abc import Callable
from typing import Any

from services.chassis.http.idle_timer import IdleTimer


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
        self.idle_timer = IdleTimer(loop)
        self.late: list[str] = []

    def headers_are_late(self) -> None:
        self.late.append("headers")

    def request_is_late(self) -> None:
        self.late.append("request")


def test_what_does_not_come_in_time_is_late_once() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.clockwork.go_on(9)
    assert scene.late == []
    scene.clockwork.go_on(1)
    scene.clockwork.go_on(100)
    assert scene.late == ["headers"]


def test_what_came_is_not_late() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.idle_timer.clear()
    scene.clockwork.go_on(100)
    assert scene.late == []


def test_time_counts_from_when_it_was_last_given() -> None:
    scene = Scene()
    for _ in range(5):
        scene.idle_timer.start(10, scene.request_is_late)
        scene.clockwork.go_on(9)
        scene.idle_timer.clear()
    scene.idle_timer.start(10, scene.request_is_late)
    scene.clockwork.go_on(9)
    assert scene.late == []
    scene.clockwork.go_on(1)
    assert scene.late == ["request"]


def test_less_patience_than_before_is_kept_too() -> None:
    scene = Scene()
    scene.idle_timer.start(75, scene.request_is_late)
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.clockwork.go_on(10)
    assert scene.late == ["headers"]


def test_any_number_of_requests_take_one_timer() -> None:
    scene = Scene()
    for _ in range(100):
        scene.idle_timer.start(75, scene.request_is_late)
        scene.clockwork.go_on(0.01)
        scene.idle_timer.clear()
    assert len(scene.clockwork.timers) == 1


async def test_real_loop_does_the_same() -> None:
    late = asyncio.Event()
    IdleTimer(asyncio.get_running_loop()).start(0.01, late.set)
    async with asyncio.timeout(60):
        await late.wait()


def test_ended_patience_leaves_no_timer_behind() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.idle_timer.close()
    assert scene.clockwork.timers == []
