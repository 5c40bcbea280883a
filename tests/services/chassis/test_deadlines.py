import asyncio

from services.chassis.deadlines import Deadlines


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
