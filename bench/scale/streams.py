"""Measures the memory of many streams with one chunk per second: the memory of each, and that it does not grow over
time."""

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.chats import AnswersWrong, Case, Upstream, started_upstream
from bench.processors import Watch
from bench.report import Progress, Row
from bench.runs import warm_up
from bench.soak.readings import SoakHarness
from bench.targets import ON_SQLITE, OURS, ChargeCheck, legato_target
from tests.support.service import Service

MEASUREMENT: Final = "idle streams"
PROMISED_KB: Final = 60.0
# Tolerates allocations that a process has not returned yet, spread over all streams.
GROWTH_MOST_KB: Final = 2.0
COUNTS: Final = (1000, 5000)
WATCHED_S: Final = 60.0
SAMPLE_EVERY_S: Final = 5.0
STREAMS_BEGUN_PER_S: Final = 250

SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
}


class Slow(Case, frozen=True):
    """Streams of one chunk per second that start one after the other and last until all of them were measured."""

    @property
    def ramp_us(self) -> int:
        return round(1e6 * self.ramp_s)

    @property
    def ramp_s(self) -> float:
        return self.in_flight / STREAMS_BEGUN_PER_S


def slow_streams(count: int, watched_s: float) -> Slow:
    # The first starts this much earlier than the last, which is late on a busy machine.
    chunks = round(2 * count / STREAMS_BEGUN_PER_S + watched_s) + 10
    return Slow(f"{count:,} streams", in_flight=count, chunks=chunks, pause_us=1_000_000)


def steps() -> int:
    return len(COUNTS)


def measure(
    progress: Progress, seconds: float, counts: Sequence[int] = COUNTS, watched_s: float = WATCHED_S
) -> Iterator[Row]:
    """Measures for a minute; `seconds` is ignored."""
    for count in counts:
        case = slow_streams(count, watched_s)
        progress.step(f"{MEASUREMENT}: {count:,}", expected_s=case.ramp_s + case.chunks)
        with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
            folder = Path(name)
            # A separate service for each: otherwise memory of an earlier run would be reused.
            with started_upstream(folder) as upstream, Service(upstream, SETTINGS) as service:
                yield measure_on(service, upstream, case, watched_s, folder, progress)


def measure_on(
    service: Service, upstream: Upstream, case: Slow, watched_s: float, folder: Path, progress: Progress
) -> Row:
    charge_check = ChargeCheck(service)
    target = legato_target(ON_SQLITE, service, charge_check)
    warm_up(target, folder, progress)
    look = _Look(SoakHarness(service), upstream, case.in_flight, watched_s)
    lasts_s = case.ramp_s + case.chunks
    outcome = target.put_load(case, folder, progress, seconds=lasts_s, chats=case.in_flight, meanwhile=look)
    charge_check.check()
    if outcome.refused or not look.is_over:
        raise AnswersWrong(f"{case.name}: {outcome.refused} were refused, or not all of them ran for {watched_s:.0f} s")
    late_ms = outcome.late_ms
    figures: dict[str, float | None] = {
        "KB a stream": sum(look.kb_a_stream(name) for name in OURS),
        **{f"{name} KB": look.kb_a_stream(name) for name in OURS},
        "grew by KB": look.growth_kb(),
        "kernel KB": look.kernel_kb(),
        "CPU µs a chunk": 1e6 * look.cpu_s / look.chunks,
        "late p50 ms": late_ms.p50 if late_ms else None,
        "late p99 ms": late_ms.p99 if late_ms else None,
    }
    return Row(MEASUREMENT, case.name, figures, look.others_share)


def verdict(rows: Sequence[Row]) -> str:
    most_kb = max(row.figures["KB a stream"] or 0.0 for row in rows)
    growth_kb = max(row.figures["grew by KB"] or 0.0 for row in rows)
    kept = "kept" if most_kb <= PROMISED_KB and growth_kb <= GROWTH_MOST_KB else "BROKEN"
    return (
        f"A stream takes up to {most_kb:.0f} KB of our memory, and {growth_kb:.1f} KB more after a minute;"
        f" promised are {PROMISED_KB:.0f} KB, and no growth: {kept}."
    )


class _Look:
    """Samples the processes once the last stream has started; called repeatedly."""

    def __init__(self, harness: SoakHarness, upstream: Upstream, streams: int, watched_s: float) -> None:
        self._harness = harness
        self._upstream = upstream
        self._streams = streams
        self._watched_s = watched_s
        self._chats_before = upstream.chats()
        self._kernel_before_kb = _kernel_kb()
        self._samples: list[dict[str, float]] = [self._memory_kb()]
        self._watch: Watch | None = None
        self._began_at_s = 0.0
        self._next_at_s = 0.0
        self._kernel_kb = 0.0
        self.is_over = False
        self.cpu_s = 0.0
        self.chunks = 1.0
        self.others_share = 0.0

    def __call__(self) -> None:
        now_s = time.monotonic()
        if self.is_over or now_s < self._next_at_s:
            return
        if self._watch is None:
            self._next_at_s = now_s + 1
            if self._upstream.chats() - self._chats_before < self._streams:
                return
            self._watch, self._began_at_s = Watch(self._harness.process_ids, family=os.getpid()), now_s
        self._samples.append(self._memory_kb())
        self._kernel_kb = max(self._kernel_kb, _kernel_kb() - self._kernel_before_kb)
        self._next_at_s = now_s + SAMPLE_EVERY_S
        if now_s >= self._began_at_s + self._watched_s:
            self.is_over = True
            spent = self._watch.spent()
            self.cpu_s, self.others_share = sum(spent.cpu_s.values()), spent.others_share
            self.chunks = self._streams * (now_s - self._began_at_s)

    def kb_a_stream(self, process: str) -> float:
        """Returns the maximum of all samples."""
        first, *others = self._samples
        return (max(sample[process] for sample in others) - first[process]) / self._streams

    def growth_kb(self) -> float:
        """Returns the growth per stream from the first half of the samples to the second."""
        totals = [sum(sample.values()) for sample in self._samples[1:]]
        half = len(totals) // 2
        return (median(totals[half:]) - median(totals[:half])) / self._streams if half else 0.0

    def kernel_kb(self) -> float:
        return self._kernel_kb / self._streams

    def _memory_kb(self) -> dict[str, float]:
        return {name.partition("-")[0]: 1024 * mib for name, mib in self._harness.private_mib().items()}


def _kernel_kb() -> float:
    """Returns the machine's socket memory and the kernel's objects, of which sockets are a part. Each stream has four
    connection ends, two of which are the client's and the provider's."""
    sockets = re.search(r"^TCP: .* mem (\d+)$", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    objects = re.search(r"^SUnreclaim: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    pages, objects_kb = (int(found[1]) if found else 0 for found in (sockets, objects))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 + objects_kb
