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
