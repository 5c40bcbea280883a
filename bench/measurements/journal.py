"""Measures the CPU time of the edge's journal, per chunk and per request."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.processors import Watch
from bench.report import Progress, Row
from edge.billing.journal import Journal
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage

NAME: Final = "journal"
# Chunks of different answers alternate, as they do in an edge.
ANSWERS: Final = 200
CHUNKS: Final = 200


class Case(NamedTuple):
    name: str
    folder: Path


CASES: Final = (Case("file on disk", Path("/tmp")), Case("file in memory", Path("/dev/shm")))


def measure(progress: Progress) -> Iterator[Row]:
    for case in CASES:
        progress.step(f"{NAME}: {case.name}", expected_s=1.0)
        with tempfile.TemporaryDirectory(prefix="lg-", dir=case.folder) as folder:
            yield _measure(case.name, Path(folder) / "edge-1.journal")


def _measure(name: str, path: Path) -> Row:
    watch = Watch({}, family=os.getpid())
    journal = Journal(path)
    began_at_s = time.thread_time()
    slots = [journal.claim(os.urandom(16).hex(), "acct_bench") for _ in range(ANSWERS)]
    claimed_at_s = time.thread_time()
    for number in range(CHUNKS):
        for slot in slots:
            slot.count(100, number)
    counted_at_s = time.thread_time()
    usage = Usage(prompt_tokens=100, completion_tokens=CHUNKS)
    for slot in slots:
        slot.mark()
        slot.seal(usage, pb.BASIS_PROVIDER, pb.END_COMPLETE)
        slot.free()
    freed_at_s = time.thread_time()
    journal.close()
    around_s = claimed_at_s - began_at_s + freed_at_s - counted_at_s
    figures: dict[str, float | None] = {
        "CPU µs a chunk": 1_000_000 * (counted_at_s - claimed_at_s) / (ANSWERS * CHUNKS),
        "CPU µs a request": 1_000_000 * around_s / ANSWERS,
    }
    return Row(NAME, name, figures, watch.spent().others_share)
