"""One worker: a fork of the process that has collected the tests. It runs those that it is told to, and reports."""

import atexit
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.forked.children import end_with_parent


@dataclass(frozen=True)
class Begun:
    """The place of the test that runs now."""

    place: int


@dataclass(frozen=True)
class Reported:
    """A report of a phase of it."""

    report: dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """The worker can take more."""


Message = Begun | Reported | Asked


class Worker:
    def __init__(self, session: pytest.Session, connection: "Connection[Any, Any]", number: int, parent: int) -> None:
        self._session = session
        self._config = session.config
        self._connection = connection
        self._number = number
        self._parent = parent

    def run(self) -> None:
        """Runs tests until there are none left; then what ends with the process."""
        end_with_parent(signal.SIGKILL, self._parent)
        self._separate()
        try:
            self._run_tests()
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            # The process that collected has ended, or somebody has ended all of them.
            pass
        finally:
            atexit._run_exitfuncs()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(Reported(data))

    def _separate(self) -> None:
        """Gives it an output, temporary files and reports of its own."""
        plugins = self._config.pluginmanager
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        folder = self._config._tmp_path_factory.getbasetemp() / f"worker-{self._number}"  # type: ignore[attr-defined]
        folder.mkdir(mode=0o700, exist_ok=True)
        self._config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        plugins.unregister(name="terminalreporter")
        # A test that takes too long ends the process, and writes where it was.
        writer = pytest.TerminalReporter(self._config, sys.__stderr__)._tw
        plugins.register(SimpleNamespace(_tw=writer), "terminalreporter")
        plugins.register(self, "worker")

    def _run_tests(self) -> None:
        items = self._session.items
        places = self._places()
        place = next(places, None)
        while place is not None:
            following = next(places, None)
            self._connection.send(Begun(place))
            item, next_item = items[place], None if following is None else items[following]
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            place = following

    def _places(self) -> Iterator[int]:
        return chain.from_iterable(iter(self._ask, ()))

    def _ask(self) -> tuple[int, ...]:
        self._connection.send(Asked())
        places: tuple[int, ...] = self._connection.recv()
        return places
