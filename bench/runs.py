"""Runs one target with one workload, and aggregates repeated runs."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.chats import AnswersWrong, Case, Outcome, Percentiles, Upstream
from bench.processors import Watch, resident_mib
from bench.report import Progress, Row
from bench.targets import DATABASE, DIRECT, OURS, RELAY, SUPERVISOR, Target

# Settlements that follow the last answer are part of the cost of the chats.
SETTLE_S: Final = 0.3
# How often memory is looked at.
LOOK_EVERY_S: Final = 0.25
# Processes whose memory is not that of the services.
UNCOUNTED: Final = (DATABASE, SUPERVISOR)
WARM_UP: Final = {Case("warm-up", in_flight=8): 300, Case("warm-up, streams", in_flight=8, chunks=20): 30}


class Run(msgspec.Struct, frozen=True):
    outcome: Outcome
    # By process.
    cpu_s: dict[str, float]
    others_share: float
    is_by_chunk: bool = False
    # The most memory that the processes had at one time, if that was watched.
    peak_mib: float | None = None

    def cost(self, processes: Sequence[str]) -> float | None:
        """CPU ms per chat, or µs per chunk of a stream."""
        if not any(process in self.cpu_s for process in processes):
            return None
        cpu_s = sum(self.cpu_s.get(process, 0.0) for process in processes)
        return 1e6 * cpu_s / self.outcome.chunks if self.is_by_chunk else 1e3 * cpu_s / self.outcome.answered

    def whole_cost(self) -> float | None:
        return self.cost([process for process in self.cpu_s if process != DATABASE])


def warm_up(target: Target, folder: Path, progress: Progress) -> None:
    for case, chats in WARM_UP.items():
        target.put_load(case, folder, progress, chats=chats)


class MemoryPeak:
    """The most memory that processes had together at any look."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = {name: number for name, number in processes.items() if name not in UNCOUNTED}
        self._looked_at_s = 0.0
        self.mib = 0.0

    def look(self) -> None:
        if time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            self.mib = max(self.mib, sum(resident_mib(self._processes).values()))
            self._looked_at_s = time.monotonic()


def run(target: Target, case: Case, upstream: Upstream, folder: Path, progress: Progress, seconds: float) -> Run:
    if case.conversation is not None and case.conversation.is_known:
        target.put_load(case, folder, progress, chats=1)
    chats_before = upstream.chats()
    watch, peak = Watch(target.processes, family=os.getpid()), MemoryPeak(target.processes)
    look = peak.look if case.conversation is not None else lambda: None
    outcome = target.put_load(case, folder, progress, seconds=seconds, meanwhile=look)
    time.sleep(SETTLE_S)
    spent = watch.spent()
    if (chats := upstream.chats() - chats_before) != outcome.answered:
        raise AnswersWrong(f"{case.name}: {outcome.answered} chats were answered, and {chats} asked of the provider")
    is_by_chunk = bool(case.chunks) and case.conversation is None
    return Run(outcome, spent.cpu_s, spent.others_share, is_by_chunk, peak.mib or None)


def rows_of(case: Case, runs: Mapping[str, Sequence[Run]]) -> Iterator[Row]:
    """Yields the medians of each target."""
    relay_cost = _median(run.whole_cost() for run in runs[RELAY])
    for name, of_target in runs.items():
        if not of_target:
            continue
        cost = _median(run.whole_cost() for run in of_target)
        figures: dict[str, float | None] = {
            _cost_name(case): cost,
            "of the relay's": cost / relay_cost if cost is not None and relay_cost else None,
            **{process: _median(run.cost([process]) for run in of_target) for process in (*OURS, DATABASE)},
            **_case_figures(case, of_target, runs),
            "refused": float(sum(run.outcome.refused for run in of_target)),
        }
        yield Row(case.name, name, figures, median(run.others_share for run in of_target))


def _cost_name(case: Case) -> str:
    if case.conversation is not None:
        return "CPU ms a turn"
    return "CPU µs a chunk" if case.chunks else "CPU ms a chat"


def _case_figures(case: Case, of_target: Sequence[Run], runs: Mapping[str, Sequence[Run]]) -> dict[str, float | None]:
    if case.conversation is not None:
        return _turn_figures(of_target, runs[RELAY])
    if case.chunks:
        return _stream_figures(of_target)
    return _whole_figures(of_target, _median_ms(runs[DIRECT], lambda outcome: outcome.whole_ms, "p50"))


def _turn_figures(runs: Sequence[Run], of_relay: Sequence[Run]) -> dict[str, float | None]:
    """Times are those to the first token, or to the answer if it is not streamed."""
    figures: dict[str, float | None] = {"turns/s": _median(run.outcome.chats_per_s for run in runs)}
    for name in ("p50", "p99"):
        ms, relay_ms = (
            _median_ms(each, lambda outcome: outcome.first_ms or outcome.whole_ms, name) for each in (runs, of_relay)
        )
        figures[f"{name} ms"] = ms
        figures[f"added {name} ms"] = None if ms is None or relay_ms is None else ms - relay_ms
    return figures | {"peak MiB": _median(run.peak_mib for run in runs)}


def _stream_figures(runs: Sequence[Run]) -> dict[str, float | None]:
    return {
        "chunks/s": _median(run.outcome.chunks_per_s for run in runs),
        "first token p50 ms": _median_ms(runs, lambda outcome: outcome.first_ms, "p50"),
        "first token p99 ms": _median_ms(runs, lambda outcome: outcome.first_ms, "p99"),
        "late p50 ms": _median_ms(runs, lambda outcome: outcome.late_ms, "p50"),
        "late p99 ms": _median_ms(runs, lambda outcome: outcome.late_ms, "p99"),
    }


def _whole_figures(runs: Sequence[Run], direct_ms: float | None) -> dict[str, float | None]:
    p50_ms = _median_ms(runs, lambda outcome: outcome.whole_ms, "p50")
    return {
        "chats/s": _median(run.outcome.chats_per_s for run in runs),
        "p50 ms": p50_ms,
        "p99 ms": _median_ms(runs, lambda outcome: outcome.whole_ms, "p99"),
        "added p50 ms": None if p50_ms is None or direct_ms is None else p50_ms - direct_ms,
    }


def _median_ms(runs: Sequence[Run], of: Callable[[Outcome], Percentiles | None], name: str) -> float | None:
    return _median(getattr(times, name) for run in runs if (times := of(run.outcome)) is not None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
