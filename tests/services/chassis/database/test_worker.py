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

    def record(number: int) -> None:
        done.append((number, threading.get_ident()))

    await asyncio.gather(*(worker.run(record, number) for number in range(9)))
    assert [number for number, _ in done] == list(range(9))
    assert len({thread for _, thread in done} | {threading.get_ident()}) == 2


async def test_the_caller_gets_the_result_or_the_error(worker: Worker) -> None:
    assert await worker.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await worker.run(divmod, 7, 0)
    assert await worker.run(divmod, 9, 2) == (4, 1)


async def test_a_machine_without_threads_to_spare_fails_one_work_and_not_all_that_follow(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            await worker.run(divmod, 7, 2)
    async with asyncio.timeout(20):
        assert await worker.run(divmod, 7, 2) == (3, 1)


class Gate:
    """Work that can be made to wait, and notes when it is done."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.done: list[str] = []

    def wait(self, name: str) -> None:
        self.began.set()
        self.may_end.wait(20)
        self.done.append(name)


async def test_a_caller_that_leaves_cancels_no_work(worker: Worker) -> None:
    gate = Gate()
    running, queued = worker.run(gate.wait, "running"), worker.run(gate.wait, "queued")
    await asyncio.to_thread(gate.began.wait, 20)
    running.cancel()
    queued.cancel()
    gate.may_end.set()
    await worker.run(gate.wait, "last")
    assert gate.done == ["running", "queued", "last"]


async def test_closing_waits_for_queued_work(worker: Worker) -> None:
    gate = Gate()
    writing = [worker.run(gate.wait, "first"), worker.run(gate.wait, "second")]
    threading.Timer(0.01, gate.may_end.set).start()
    worker.close()
    assert gate.done == ["first", "second"]
    await asyncio.gather(*writing)
    with pytest.raises(RuntimeError, match="worker is closed"):
        await worker.run(gate.wait, "third")


def test_work_is_done_even_if_its_event_loop_has_ended(worker: Worker) -> None:
    gate = Gate()

    async def leave() -> None:
        worker.run(gate.wait, "work").cancel()

    asyncio.run(leave())
    gate.may_end.set()
    worker.close()
    assert gate.done == ["work"]


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
        await worker.run(divmod, 7, 2)
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()
