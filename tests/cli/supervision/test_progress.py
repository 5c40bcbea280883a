import os
import subprocess
import sys
from pathlib import Path

from cli.supervision.progress import Pulse, starved_s
from tests.support.waiting import wait_until


def test_beat_is_seen_once() -> None:
    pulse = Pulse()
    os.write(pulse.beating, b"..")
    assert [pulse.has_beaten(), pulse.has_beaten()] == [True, False]
    pulse.close()


def test_process_that_wants_more_than_there_is_starves() -> None:
    """Three that never rest, on one processor."""
    spin = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]
    try:
        wait_until(lambda: all(starved_s(process.pid) > 0.2 for process in spinning))
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def test_nothing_is_known_of_a_process_that_has_ended() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not Path(f"/proc/{ended.pid}").exists()
    assert starved_s(ended.pid) == 0.0
