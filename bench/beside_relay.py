"""Legato with everything on beside a relay that only passes bytes: the same chats, one after the other, in one go.

What a machine does to one it does to the other, so the ratio of their costs says more than any figure of its own.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench import disk_sync
from bench.chats import AnswersWrong, Case, Outcome, Percentiles, Upstream, started_upstream
from bench.processors import Watch, calibrate, resident_mib
from bench.progress import Progress
from bench.report import CALIBRATION, Row, percentile
from bench.targets import (
    DATABASE,
    DIRECT,
    ON_POSTGRESQL,
    ON_SQLITE,
    RELAY,
    SUPERVISOR,
    Target,
    direct,
    started_legato,
    started_relay,
)

ONE: Final = Case("one at a time", in_flight=1)
MANY: Final = Case("64 at once", in_flight=64)
BURST: Final = Case("32 streams in bursts", in_flight=32, chunks=100)
PACED: Final = Case("200 paced streams", in_flight=200, chunks=50, pause_us=10_000)
CASES: Final = (ONE, MANY, BURST, PACED)
FOOTPRINT: Final = "footprint"

ROUNDS: Final = 3
SECONDS: Final = 4.0
# What is still to be settled when the last answer is there belongs to the cost of the chats.
SETTLE_S: Final = 0.3
WARM_UP: Final = (Case("warm-up", in_flight=8), Case("warm-up, streams", in_flight=8, chunks=20))
WARM_UP_CHATS: Final = (300, 30)
OURS: Final = ("edge", "router", "metering", "auth")

Starter = Callable[[Upstream, Path, Progress], AbstractContextManager[Target]]


class Run(msgspec.Struct, frozen=True):
    """One target in one case."""

    outcome: Outcome
    cpu_s: dict[str, float]
    others_share: float

    def cost(self, names: Sequence[str]) -> float | None:
        """CPU ms a chat, or µs a chunk of a stream."""
        if not any(name in self.cpu_s for name in names):
            return None
        cpu_s = sum(self.cpu_s.get(name, 0.0) for name in names)
        return 1e6 * cpu_s / self.outcome.chunks if self.outcome.chunks else 1e3 * cpu_s / self.outcome.answered


def legato_on(name: str) -> Starter:
    return lambda upstream, folder, progress: started_legato(name, upstream, folder, progress)


STARTERS: Final[tuple[Starter, ...]] = (started_relay, legato_on(ON_SQLITE), legato_on(ON_POSTGRESQL))


def steps(rounds: int = ROUNDS, starters: Sequence[Starter] = STARTERS) -> int:
    return len(starters) + (1 + rounds * len(starters)) * len(CASES)


def measure(
    progress: Progress, seconds: float = SECONDS, rounds: int = ROUNDS, starters: Sequence[Starter] = STARTERS
) -> Iterator[Row]:
    calibration_ms = [calibrate()]
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, ExitStack() as opened:
        folder = Path(name)
        upstream = opened.enter_context(started_upstream(folder))
        targets = []
        for starter in starters:
            progress.step("starting what is measured", expected_s=5)
            targets.append(opened.enter_context(starter(upstream, folder, progress)))
        idle_mib = {target.name: resident_mib(target.processes) for target in targets}
        for target in targets:
            warm_up(target, folder, progress)
        runs = {case.name: {target.name: list[Run]() for target in (direct(upstream), *targets)} for case in CASES}
        for number in range(rounds):
            for case in CASES:
                # The provider itself says what the machine can do at best; once is enough.
                for target in (direct(upstream), *targets) if number == 0 else targets:
                    progress.step(f"{case.name}: {target.name}", expected_s=seconds + SETTLE_S)
                    runs[case.name][target.name].append(run(target, case, upstream, folder, progress, seconds))
            calibration_ms.append(calibrate())
        after_mib = {target.name: resident_mib(target.processes) for target in targets}
        for target in targets:
            if target.books is not None:
                target.books.check()
    for case in CASES:
        yield from rows_of(case, runs[case.name])
    for target in targets:
        yield _footprint(target, idle_mib[target.name], after_mib[target.name])
    syncs_ms = disk_sync.time_syncs_ms()
    figures: dict[str, float | None] = {
        "CPU ms least": min(calibration_ms),
        "most / least": max(calibration_ms) / min(calibration_ms),
        "disk sync p50 ms": percentile(syncs_ms, 50),
    }
    yield Row(CALIBRATION, "a fixed loop", figures, 0.0)


def warm_up(target: Target, folder: Path, progress: Progress) -> None:
    for case, chats in zip(WARM_UP, WARM_UP_CHATS, strict=True):
        target.put_load(case, folder, progress, chats=chats)


def run(target: Target, case: Case, upstream: Upstream, folder: Path, progress: Progress, seconds: float) -> Run:
    chats_before = upstream.chats()
    watch = Watch(target.processes, family=os.getpid())
    outcome = target.put_load(case, folder, progress, seconds=seconds)
    time.sleep(SETTLE_S)
    spent = watch.spent()
    if (chats := upstream.chats() - chats_before) != outcome.answered:
        raise AnswersWrong(f"{target.name}: {outcome.answered} chats were answered, and {chats} asked of the provider")
    return Run(outcome, spent.cpu_s, spent.others_share)


def rows_of(case: Case, runs: Mapping[str, Sequence[Run]]) -> Iterator[Row]:
    """Medians of all rounds."""
    unit = "CPU µs a chunk" if case.chunks else "CPU ms a chat"
    relay_cost = _cost(runs[RELAY], [RELAY])
    direct_ms = _milliseconds(runs[DIRECT], lambda outcome: outcome.whole_ms, "p50")
    for name, of_target in runs.items():
        processes = [process for process in of_target[0].cpu_s if process != DATABASE]
        cost = _cost(of_target, processes)
        figures: dict[str, float | None] = {unit: cost}
        figures["of the relay's"] = cost / relay_cost if cost is not None and relay_cost else None
        figures |= {process: _cost(of_target, [process]) for process in (*OURS, DATABASE)}
        if case.chunks:
            figures["chunks/s"] = median(run.outcome.chunks_per_s for run in of_target)
            figures["first token p50 ms"] = _milliseconds(of_target, lambda outcome: outcome.first_ms, "p50")
            figures["first token p99 ms"] = _milliseconds(of_target, lambda outcome: outcome.first_ms, "p99")
            figures["late p50 ms"] = _milliseconds(of_target, lambda outcome: outcome.late_ms, "p50")
            figures["late p99 ms"] = _milliseconds(of_target, lambda outcome: outcome.late_ms, "p99")
        else:
            whole_ms = _milliseconds(of_target, lambda outcome: outcome.whole_ms, "p50")
            figures["chats/s"] = median(run.outcome.chats_per_s for run in of_target)
            figures["p50 ms"] = whole_ms
            figures["p99 ms"] = _milliseconds(of_target, lambda outcome: outcome.whole_ms, "p99")
            figures["added p50 ms"] = None if whole_ms is None or direct_ms is None else whole_ms - direct_ms
        figures["refused"] = float(sum(run.outcome.refused for run in of_target))
        yield Row(case.name, name, figures, median(run.others_share for run in of_target))


def _cost(runs: Sequence[Run], processes: Sequence[str]) -> float | None:
    costs = [cost for run in runs if (cost := run.cost(processes)) is not None]
    return median(costs) if costs else None


def _milliseconds(runs: Sequence[Run], of: Callable[[Outcome], Percentiles | None], name: str) -> float | None:
    times_ms: list[float] = [getattr(times, name) for run in runs if (times := of(run.outcome)) is not None]
    return median(times_ms) if times_ms else None


def _footprint(target: Target, idle_mib: Mapping[str, float], after_mib: Mapping[str, float]) -> Row:
    counted = [process for process in idle_mib if process not in (DATABASE, SUPERVISOR)]
    figures: dict[str, float | None] = {
        "first answer s": target.first_answer_s,
        "idle MiB": sum(idle_mib[process] for process in counted),
        "after MiB": sum(after_mib[process] for process in counted),
        **{f"{process} MiB": idle_mib.get(process) for process in (*OURS, SUPERVISOR)},
    }
    return Row(FOOTPRINT, target.name, figures, 0.0)
