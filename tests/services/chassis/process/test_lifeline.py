import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from services.chassis.process import lifeline
from tests.support.waiting import WAIT_TIMEOUT_S

# Says on stdout that it holds the line, and what it did last.
ORDERLY = """
import signal, sys
from services.chassis.process import lifeline
lifeline.hold()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("holding", flush=True)
signal.pause()
"""

STUBBORN = """
import signal, time
from services.chassis.process import lifeline
lifeline.GRACE_S = 0.1
lifeline.hold()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("holding", flush=True)
time.sleep(60)
"""

GRANDCHILD = """
import os, subprocess, sys
from services.chassis.process import lifeline
lifeline.hold()
print(subprocess.run([sys.executable, "-c", "import os; print(os.environ.get('LEGATO_LIFELINE_FD'))"],
                     capture_output=True, text=True, check=True).stdout.strip(), flush=True)
"""


@contextmanager
def child_on_a_lifeline(program: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The child, and the write end that keeps it alive."""
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(read_end,),
        env={**os.environ, lifeline.VARIABLE: str(read_end)},
    )
    os.close(read_end)
    try:
        yield child, write_end
    finally:
        child.kill()
        child.communicate()


def first_line_of(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_child_ends_in_order_when_its_supervisor_is_gone() -> None:
    with child_on_a_lifeline(ORDERLY) as (child, write_end):
        assert first_line_of(child) == "holding"
        assert child.poll() is None
        os.close(write_end)
        assert child.wait(timeout=WAIT_TIMEOUT_S) == 0


def test_a_child_that_does_not_end_in_order_is_ended() -> None:
    with child_on_a_lifeline(STUBBORN) as (child, write_end):
        assert first_line_of(child) == "holding"
        os.close(write_end)
        assert child.wait(timeout=WAIT_TIMEOUT_S) == 1


def test_the_lifeline_is_not_handed_on_to_grandchildren() -> None:
    with child_on_a_lifeline(GRANDCHILD) as (child, write_end):
        assert first_line_of(child) == "None"
        os.close(write_end)


def test_a_process_started_by_hand_has_no_lifeline() -> None:
    program = (
        "import threading; from services.chassis.process.lifeline import hold; hold(); print(threading.active_count())"
    )
    environ = {name: value for name, value in os.environ.items() if name != lifeline.VARIABLE}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.strip() == "1"
