"""Measures the duration of a disk sync. Every durable commit waits for at least one, so other figures depend on it."""

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from bench.processors import Watch
from bench.report import Progress, Row, percentile

NAME: Final = "disk sync"
SYNCS: Final = 200
# A page of PostgreSQL's write-ahead log.
PAGE_BYTES: Final = 8192


def measure(progress: Progress) -> Iterator[Row]:
    progress.step(NAME, expected_s=1.0)
    watch = Watch({}, family=os.getpid())
    syncs_ms = time_syncs_ms()
    figures: dict[str, float | None] = {"p50 ms": percentile(syncs_ms, 50), "p99 ms": percentile(syncs_ms, 99)}
    yield Row(NAME, "one page", figures, watch.spent().others_share)


def time_syncs_ms() -> list[float]:
    syncs_ms: list[float] = []
    # The disk with the databases of the other measurements.
    with tempfile.TemporaryFile(dir="/tmp", buffering=0) as file:
        for _ in range(SYNCS):
            began_at_s = time.perf_counter()
            file.write(bytes(PAGE_BYTES))
            os.fdatasync(file.fileno())
            syncs_ms.append(1000 * (time.perf_counter() - began_at_s))
    return syncs_ms
