"""What is given back once a process serves. In processes of their own: it concerns all that one has."""

import subprocess
import sys

LIBRARIES = """
import hashlib
import sqlite3
import ssl
from decimal import Decimal

from google.protobuf.duration_pb2 import Duration
from rs_bpe import bpe

from services.chassis.memory import settle

def work():
    database = sqlite3.connect(":memory:")
    return [
        vocabulary.count("What was counted before. " * 1000),
        hashlib.sha256(b"hashed before").hexdigest(),
        Duration(seconds=7).SerializeToString(),
        database.execute("SELECT max(value) FROM (SELECT 1 AS value UNION SELECT 2)").fetchall(),
        str(Decimal(1) / 7),
        ssl.create_default_context().protocol,
    ]

def resident_file_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[2]) * 4096

vocabulary = bpe.openai.o200k_base()
done = work()
before_bytes = resident_file_bytes()
settle()
assert work() == done
print(before_bytes, resident_file_bytes())
"""


def test_libraries_take_less_room_once_a_process_serves_and_work_as_before() -> None:
    ended = subprocess.run([sys.executable, "-c", LIBRARIES], capture_output=True, text=True, check=True)
    before_bytes, after_bytes = map(int, ended.stdout.split())
    # Most of it is what the vocabulary was made from.
    assert before_bytes > 40 * 1024 * 1024
    assert after_bytes < 16 * 1024 * 1024


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
