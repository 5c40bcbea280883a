import asyncio

import pytest

from services.chassis.timing import yielder as timing
from services.chassis.timing.yielder import IDLE_TURN_S, PAUSE_S, Yielder


async def others_after(work: list[int], slice_size: int) -> list[int]:
    """Finds after which parts of the work others ran."""
    seen: list[int] = []
    done = 0

    async def look() -> None:
        while True:
            if done and done not in seen:
                seen.append(done)
            await asyncio.sleep(0)

    other = asyncio.create_task(look())
    yielder = Yielder(slice_size)
    for part in work:
        done += 1
        await yielder.spend(part)
    other.cancel()
    return seen


async def test_others_run_whenever_a_slice_is_done() -> None:
    assert await others_after([4, 4, 4, 4, 4, 4], 10) == [3, 6]


async def test_part_larger_than_a_slice_is_followed_by_others() -> None:
    assert await others_after([1, 100, 1, 1], 10) == [2]


async def test_less_than_a_slice_is_done_at_once() -> None:
    assert await others_after([3, 3, 3], 10) == []


class PlayedTime:
    """A clock that others advance by working, and the sleeps that were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.sleeps_s: list[float] = []
        sleep = asyncio.sleep

        async def noted_sleep(delay_s: float) -> None:
            self.sleeps_s.append(delay_s)
            await sleep(0)

        monkeypatch.setattr(timing, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(asyncio, "sleep", noted_sleep)


async def test_nobody_who_waits_is_no_reason_to_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    played = PlayedTime(monkeypatch)
    yielder = Yielder(10)
    for _ in range(3):
        await yielder.spend(10)
    assert played.sleeps_s == [0, 0, 0]


async def test_those_who_work_meanwhile_get_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    played = PlayedTime(monkeypatch)

    def work() -> None:
        played.now_s += 2 * IDLE_TURN_S

    yielder = Yielder(10)
    await yielder.spend(10)
    asyncio.get_running_loop().call_soon(work)
    await yielder.spend(10)
    await yielder.spend(10)
    assert played.sleeps_s == [0, 0, PAUSE_S, 0]
