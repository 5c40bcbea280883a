import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from services.chassis.database.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("worker")
    yield worker
    worker.close()


async def test_work_is_done_in_one_other_thread_in_the_order_of_the_calls(worker: Worker) -> None:
    done: list[tuple[int, int]] = []
    await asyncio.gather(*(worker.run(lambda number: done.append((number, threading.get_ident())), n) for n in range(9)))
    assert [number for number, _ in done] == list(range(9))
    assert len({thread for _, thread in done} | {threading.get_ident()}) == 2


async def test_the_caller_gets_the_result_or_the_error(worker: Worker) -> None:
    assert await worker.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await worker.run(divmod, 7, 0)
    assert await worker.run(divmod, 9, 2) == (4, 1)


async def test_a_caller_that_leaves_cancels_no_work(worker: Worker) -> None:
    began, may_end, done = threading.Event(), threading.Event(), []
    running = worker.run(lambda: (began.set(), may_end.wait(), done.append("running")))
    queued = worker.run(lambda: done.append("queued"))
    await asyncio.to_thread(began.wait)
    running.cancel()
    queued.cancel()
    may_end.set()
    await worker.run(lambda: None)
    assert done == ["running", "queued"]


async def test_closing_waits_for_queued_work(worker: Worker) -> None:
    may_end, done = threading.Event(), []
    worker.run(lambda: (may_end.wait(), done.append("first")))
    worker.run(lambda: done.append("second"))
    threading.Timer(0.01, may_end.set).start()
    worker.close()
    assert done == ["first", "second"]
    with pytest.raises(RuntimeError, match="worker is closed"):
        worker.run(lambda: None)


def test_work_is_done_even_if_its_event_loop_has_ended(worker: Worker) -> None:
    may_end, done = threading.Event(), []

    async def leave() -> None:
        worker.run(lambda: (may_end.wait(), done.append("done")))

    asyncio.run(leave())
    may_end.set()
    worker.close()
    assert done == ["done"]


async def test_neither_results_nor_errors_are_kept_until_the_next_work(worker: Worker) -> None:
    class Result:
        pass

    def fail(held: Result) -> None:
        raise ValueError

    gc.disable()
    try:
        result, argument = await worker.run(Result), Result()
        kept = [weakref.ref(result), weakref.ref(argument)]
        with contextlib.suppress(ValueError):
            await worker.run(fail, argument)
        del result, argument
        # The thread drops what it did before it takes the next.
        await worker.run(lambda: None)
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()
