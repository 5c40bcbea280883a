"""A thread that does one piece of work after the other, in the order of the calls.

An executor of the standard library does the same with a lock, a condition and two futures for each piece of work, which
cost more than a short transaction.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


# The work, its arguments, and who waits for it.
_Job = tuple[Callable[..., object], tuple[object, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Worker:
    def __init__(self, name: str) -> None:
        self._name = name
        # None ends the thread.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Callable[..., ResultT], *arguments: object) -> "asyncio.Future[ResultT]":
        """Queues `work`; the future has its result, or whatever fails. Cancelling the future cancels no work."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        if self._is_closed:
            future.set_exception(RuntimeError(f"{self._name} is closed"))
            return future
        if self._thread is None:
            # A daemon, so that a process that fails without closing it can exit.
            thread = threading.Thread(target=_work_off, args=(self._jobs,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The machine has no thread to spare; the next call tries again.
                future.set_exception(error)
                return future
            self._thread = thread
        self._jobs.put((work, arguments, loop, future))
        return future

    def close(self) -> None:
        """Waits until all queued work is done, and ends the thread."""
        self._is_closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()


def _work_off(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        _do(job)
        # Not kept until the next one comes.
        del job


def _do(job: _Job) -> None:
    work, arguments, loop, future = job
    result, error = None, None
    try:
        result = work(*arguments)
    except BaseException as raised:
        # For the caller, who may be waiting for nothing else.
        error = raised
    try:
        loop.call_soon_threadsafe(_resolve, future, result, error)
    except RuntimeError:
        # The loop is closed: no caller waits.
        pass
    finally:
        # The exception refers to this frame, by its traceback, and the job to the exception, by its future.
        del job, future, error


def _resolve(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
