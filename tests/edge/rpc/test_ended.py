"""Waiting for the end of a task, whatever it comes to."""

import asyncio
from collections.abc import Callable

import pytest

from edge.rpc.ended import ended


async def test_it_waits_for_an_end_of_any_kind_and_raises_nothing_of_it() -> None:
    ends: list[Callable[[asyncio.Future[int]], object]] = [
        lambda future: future.set_result(1),
        lambda future: future.set_exception(ValueError()),
        lambda future: future.cancel(),
    ]
    for finish in ends:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(ended(future))
        await asyncio.sleep(0)
        assert not waiting.done()
        finish(future)
        await waiting
        # One that is done already, too.
        await ended(future)
        if not future.cancelled():
            future.exception()


async def test_who_is_cancelled_meanwhile_leaves_the_task_alone() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(ended(future))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not future.done()
    future.set_result(1)
    assert await future == 1
