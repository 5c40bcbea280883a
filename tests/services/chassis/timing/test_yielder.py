import asyncio

from services.chassis.timing.yielder import Yielder


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
