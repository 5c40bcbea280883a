"""What is given back once a process serves. In processes of their own: it concerns all that one has."""

import subprocess
import sys

LIBRARY = """
from rs_bpe import bpe
from services.chassis.memory import let_go_of_file, settle

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

vocabulary = bpe.openai.o200k_base()
counted = vocabulary.count("What was counted before. " * 1000)
before_bytes = resident_bytes()
let_go_of_file(bpe.__file__)
print(before_bytes - resident_bytes())
assert vocabulary.count("What was counted before. " * 1000) == counted
settle()
"""


def test_library_that_was_let_go_of_takes_less_room_and_works_as_before() -> None:
    ended = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True, check=True)
    assert int(ended.stdout) > 20 * 1024 * 1024


COLLECTED = """
import gc
from services.chassis.memory import settle

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
