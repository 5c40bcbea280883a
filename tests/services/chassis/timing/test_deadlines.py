import asyncio
import gc
import weakref

import pytest

from services.chassis.timing.deadlines import Deadlines


async def test_each_limit_passes_once_and_in_its_turn() -> None:
    deadlines, passed = Deadlines(), list[str]()
    both = asyncio.Event()
    deadlines.new(both.set).set(deadlines.now_s() + 0.06)
    deadlines.new(lambda: passed.append("later")).set(deadlines.now_s() + 0.03)
    deadlines.new(lambda: passed.append("sooner")).set(deadlines.now_s() + 0.01)
    await both.wait()
    await asyncio.sleep(0.05)
    assert passed == ["sooner", "later"]


async def test_limit_that_was_cleared_does_not_pass_and_others_still_do() -> None:
    deadlines, passed = Deadlines(), list[str]()
    other = asyncio.Event()
    cleared = deadlines.new(lambda: passed.append("cleared"))
    cleared.set(deadlines.now_s() + 0.01)
    deadlines.new(other.set).set(deadlines.now_s() + 0.02)
    cleared.clear()
    await other.wait()
    assert passed == []


async def test_limit_that_is_set_anew_counts_from_then() -> None:
    deadlines, passed = Deadlines(), list[str]()
    other = asyncio.Event()
    moved = deadlines.new(lambda: passed.append("moved"))
    moved.set(deadlines.now_s() + 0.01)
    moved.set(deadlines.now_s() + 60)
    deadlines.new(other.set).set(deadlines.now_s() + 0.02)
    await other.wait()
    assert passed == []
    moved.set(deadlines.now_s())
    await asyncio.sleep(0.02)
    assert passed == ["moved"]


async def test_limit_may_be_set_again_when_it_has_passed() -> None:
    deadlines, passed = Deadlines(), list[str]()
    deadline = deadlines.new(lambda: passed.append("passed"))
    for times in (1, 2):
        deadline.set(deadlines.now_s())
        await asyncio.sleep(0.02)
        assert len(passed) == times


class TooLate(Exception):
    pass


async def test_work_that_takes_too_long_is_ended_with_the_error_it_was_given() -> None:
    deadlines = Deadlines()
    with pytest.raises(TooLate), deadlines.limit(0.01, TooLate()):
        await asyncio.sleep(60)
    # The task itself goes on as if nothing had happened.
    with deadlines.limit(60, TooLate()):
        await asyncio.sleep(0)


async def test_work_that_is_done_in_time_is_left_alone() -> None:
    deadlines = Deadlines()
    with deadlines.limit(0.01, TooLate()):
        await asyncio.sleep(0)
    with pytest.raises(ValueError), deadlines.limit(0.01, TooLate()):  # noqa: PT011
        raise ValueError
    await asyncio.sleep(0.03)


async def test_a_cancelled_task_ends_whatever_the_time() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        with deadlines.limit(60, TooLate()):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_limit_that_was_kept_leaves_nothing_to_the_collector_of_garbage() -> None:
    deadlines, error = Deadlines(), TooLate()
    seen = weakref.ref(error)
    gc.disable()
    try:
        with deadlines.limit(60, error):
            await asyncio.sleep(0)
        del error
        assert seen() is None
    finally:
        gc.enable()
