import os
import subprocess
import sys

from bench.processors import Watch

WORK_S = 0.3
WORK = f"import sys, time\nwhile time.process_time() < {WORK_S}: pass\nprint(flush=True)\nsys.stdin.read()"


def test_work_of_a_child_is_its_groups_while_it_runs_and_after_its_end() -> None:
    watch = Watch({"us": os.getpid()}, family=os.getpid())
    child = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    while_it_runs = watch.spent()
    child.communicate()
    after_its_end = watch.spent()
    # The kernel counts in hundredths.
    assert while_it_runs.cpu_s["us"] >= WORK_S - 0.05
    assert after_its_end.cpu_s["us"] >= while_it_runs.cpu_s["us"]


def test_work_of_processes_outside_the_family_is_that_of_others() -> None:
    # A family of its own: what our child does is none of its work.
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = Watch({}, family=stranger.pid)
    child = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert 0 < watch.spent().others_share <= 1
    for process in (child, stranger):
        process.communicate(b"\n")
