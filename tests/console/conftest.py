import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.display import language
from tests.console.auth_rows import CODE, INVITATION
from tests.console.harness import ConsoleHarness

# Whatever tests did with the console; and the addresses of its users.
SECRET = re.compile(r"(?:sk|pt)-legato-|session-token-|[\w.]+@[\w.]+|example\.ca|" + "|".join((CODE, INVITATION)))


def _assert_nothing_secret(log: str) -> None:
    assert SECRET.findall(log) == []


@pytest.fixture(scope="package")
def running_console() -> Iterator[ConsoleHarness]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    harness = ConsoleHarness(folder)
    harness.start()
    yield harness
    harness.stop()
    _assert_nothing_secret(harness.log_stream.getvalue())
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def french() -> Iterator[None]:
    """Speaks French for the time of a test."""
    language.speak("fr")
    yield
    language.speak(language.ENGLISH)


@pytest.fixture
def console(running_console: ConsoleHarness) -> ConsoleHarness:
    """The console, with services as `Backends.reset` leaves them."""
    running_console.backends.reset()
    return running_console
