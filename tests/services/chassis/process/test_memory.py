"""Objects made at the start are frozen. In a process of its own: it concerns all that one has."""

import subprocess
import sys

COLLECTED = """
import gc
from services.chassis.process.memory import settle

settle()
assert gc.get_freeze_count() > 1000
# What comes later is looked at as ever.
loop = []
loop.append(loop)
del loop
assert gc.collect() >= 1
"""


def test_what_the_start_made_is_not_looked_at_again() -> None:
    subprocess.run([sys.executable, "-c", COLLECTED], check=True)


RETURNED = """
from services.chassis.process.memory import settle

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

settle()
# Blocks of a growing size, with something small after each, which stays.
before, kept = resident_bytes(), []
for size in range(1, 9):
    large = [b"x" * (size << 20) for _ in range(8)]
    kept.append([bytes(1000) for _ in range(1000)])
    del large
assert resident_bytes() - before < 32 << 20, resident_bytes() - before
"""


def test_large_blocks_are_returned_as_soon_as_they_are_freed() -> None:
    subprocess.run([sys.executable, "-c", RETURNED], check=True)
