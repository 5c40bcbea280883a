import os
import subprocess
import sys

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.process.run import run
from services.chassis.sentence import Sentence
from services.chassis.settings import SettingsError


def test_wrong_settings_are_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        raise SettingsError("LEGATO_A is not set\nLEGATO_B: Expected `int`")

    with pytest.raises(SystemExit) as ended:
        run("test", main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "LEGATO_A is not set\nLEGATO_B: Expected `int`\n"


def test_other_reasons_are_told_in_one_line() -> None:
    async def main() -> None:
        raise LegatoError(Reason.UNAVAILABLE, Sentence.verbatim("the database cannot be reached"))

    with pytest.raises(SystemExit, match="test: the database cannot be reached"):
        run("test", main)


def test_orderly_end_is_no_exit() -> None:
    async def main() -> None:
        return

    run("test", main)


CRASHES = """
import os, resource
from services.chassis.process.run import run

async def main():
    os.abort()

most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
run("test", main)
"""


def test_crash_leaves_nothing_of_what_was_in_memory() -> None:
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", CRASHES], os.environ)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)


TELLS_ITS_LIMIT = """
import resource
from services.chassis.process.run import run

async def main():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

run("test", main)
"""


def test_process_takes_as_many_connections_as_it_may_wherever_it_was_started() -> None:
    """A container starts with the limit that systems give at first."""
    limited = ["/bin/sh", "-c", 'ulimit -Sn 128 && ulimit -Hn 512 && exec "$@"', "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", TELLS_ITS_LIMIT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512", "512"]
