import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.harness import ConsoleHarness


@pytest.fixture(scope="package")
def running_console() -> Iterator[ConsoleHarness]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    harness = ConsoleHarness(folder)
    harness.start()
    yield harness
    harness.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def console(running_console: ConsoleHarness) -> ConsoleHarness:
    """The console, with services that know nothing yet."""
    running_console.fakes.reset()
    return running_console
