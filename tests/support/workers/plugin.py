"""`pytest --workers 4`: forks workers of the process that has collected the tests, so that all of them collect once.

Collecting imports every test, and with them the whole service and the clients of vendors; pytest-xdist has each worker
do that again. What each runs next is decided when it asks (see `shares.py`). A worker that ends early fails the test
that it was running, and another takes its place.
"""

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import connection
from typing import Any, Final

import pytest

from tests.support.workers.shares import Share, Shares
from tests.support.workers.worker import Asked, Begun, Message, Reported, Worker

SHARED_FOLDER: Final = pytest.StashKey[str | None]()
_FORK: Final = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in this many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in workers; None for pytest to run them itself, or to say why it cannot."""
    workers: int = session.config.option.workers
    if not workers or session.testsfailed or session.config.option.collectonly or not session.items:
        return None
    _Run(session, workers).run()
    return True


@dataclass
class _Fork:
    number: int
    process: Any
    connection: Any
    # What it has not run yet, and what it runs now.
    left: list[int] = field(default_factory=list)
    running: int | None = None
    folder: str | None = None


class _Run:
    def __init__(self, session: pytest.Session, workers: int) -> None:
        self._session = session
        self._hook = session.config.hook
        self._shares = Shares(list(_shares(session.items)), workers)
        # Before there are workers, all of which make folders in it.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._forks = {fork.connection: fork for fork in map(self._fork, range(workers))}

    def run(self) -> None:
        try:
            while self._forks:
                for ready in connection.wait(list(self._forks)):
                    self._receive(self._forks[ready])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
        finally:
            for fork in self._forks.values():
                fork.process.kill()
                fork.process.join()

    def _fork(self, number: int) -> _Fork:
        ours, theirs = _FORK.Pipe()
        process = _FORK.Process(target=Worker(self._session, theirs, number, os.getpid()).run)
        process.start()
        theirs.close()
        return _Fork(number, process, ours)

    def _receive(self, fork: _Fork) -> None:
        try:
            message: Message = fork.connection.recv()
        except (EOFError, ConnectionResetError):
            self._end(fork)
            return
        if isinstance(message, Asked):
            share = self._shares.take(fork.number)
            fork.left += share.places if share else ()
            fork.folder = share.folder if share else fork.folder
            fork.connection.send(share.places if share else ())
        elif isinstance(message, Begun):
            fork.running = message.place
            fork.left.remove(message.place)
        elif isinstance(message, Reported):
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=message.report)
            self._hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                fork.running = None

    def _end(self, fork: _Fork) -> None:
        del self._forks[fork.connection]
        fork.connection.close()
        fork.process.join()
        code = fork.process.exitcode
        if fork.running is None and not code and not fork.left:
            return
        if fork.running is not None:
            self._fail(self._session.items[fork.running], f"its worker ended with exit code {code}")
        self._shares.give_back(fork.number, fork.left, fork.folder)
        another = self._fork(fork.number)
        self._forks[another.connection] = another

    def _fail(self, item: pytest.Item, reason: str) -> None:
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
        self._hook.pytest_runtest_logreport(report=report)


def _shares(items: list[pytest.Item]) -> Iterator[Share]:
    def module(place: int) -> tuple[str, str | None]:
        return str(items[place].path), items[place].stash.get(SHARED_FOLDER, None)

    for (_, folder), places in groupby(range(len(items)), module):
        yield Share(tuple(places), folder)
