"""Compares Legato, with everything enabled, with a relay that only forwards bytes. Both get the same chats, in turns.

A disturbance of the machine affects both, so the ratio of their costs is more reliable than either figure.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path
from typing import Final

from bench.chats import AnswersWrong, Case, Upstream, started_upstream
from bench.measurements import disk_sync
from bench.processors import calibrate, resident_mib
from bench.report import CALIBRATION, Progress, Row, percentile
from bench.runs import SETTLE_S, UNCOUNTED, Run, rows_of, run, warm_up
from bench.targets import (
    DIRECT,
    ON_POSTGRESQL,
    ON_SQLITE,
    OURS,
    SUPERVISOR,
    Target,
    TargetMissing,
    direct,
    started_legato,
    started_relay,
)

ONE: Final = Case("one at a time", in_flight=1)
MANY: Final = Case("64 at once", in_flight=64)
BURST: Final = Case("32 streams in bursts", in_flight=32, chunks=100)
PACED: Final = Case("200 paced streams", in_flight=200, chunks=50, pause_us=10_000)
# Ordinary load: a model that writes 50 chunks per second, and a typical number of streams per process.
SLOW_10, SLOW_50, SLOW_100, SLOW_200 = (
    Case(f"{streams} slow streams", in_flight=streams, chunks=60, pause_us=20_000) for streams in (10, 50, 100, 200)
)
SLOW: Final = (SLOW_10, SLOW_50, SLOW_100, SLOW_200)
CASES: Final = (*SLOW, ONE, MANY, BURST, PACED)
FOOTPRINT: Final = "footprint"

ROUNDS: Final = 3
SECONDS: Final = 4.0

Starter = Callable[[Upstream, Path, Progress], AbstractContextManager[Target]]


def legato_on(name: str) -> Starter:
    return lambda upstream, folder, progress: started_legato(name, upstream, folder, progress)


STARTERS: Final[tuple[Starter, ...]] = (started_relay, legato_on(ON_SQLITE), legato_on(ON_POSTGRESQL))


def steps(rounds: int, peers: Sequence[Starter] = (), cases: Sequence[Case] = CASES) -> int:
    targets = len(STARTERS) + len(peers)
    # The provider itself is measured in one round, too.
    return targets + (1 + rounds * targets) * len(cases)


def measure(
    progress: Progress,
    seconds: float,
    rounds: int,
    peers: Sequence[Starter] = (),
    failures: list[str] | None = None,
    cases: Sequence[Case] = CASES,
) -> Iterator[Row]:
    """Measures the targets in turns. A peer that is missing or does not answer is added to `failures`."""
    failures = [] if failures is None else failures
    calibration_ms = [calibrate()]
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, ExitStack() as opened:
        folder = Path(name)
        upstream = opened.enter_context(started_upstream(folder))
        targets = []
        for starter in (*STARTERS, *peers):
            progress.step("starting what is measured", expected_s=5)
            try:
                targets.append(opened.enter_context(starter(upstream, folder, progress)))
            except TargetMissing as missing:
                failures.append(str(missing))
        idle_mib = [resident_mib(target.processes) for target in targets]
        for target in targets:
            warm_up(target, folder, progress)
        runs = {case: {target.name: list[Run]() for target in (direct(upstream), *targets)} for case in cases}
        for number in range(rounds):
            for case, target in product(cases, (direct(upstream), *targets)):
                # The provider itself shows the machine's best case; one round is enough.
                if target.name == DIRECT and number:
                    continue
                progress.step(f"{case.name}: {target.name}", expected_s=seconds + SETTLE_S)
                try:
                    runs[case][target.name].append(run(target, case, upstream, folder, progress, seconds))
                except AnswersWrong as wrong:
                    if not target.is_peer:
                        raise
                    failures.append(f"{target.name}: {wrong}")
            calibration_ms.append(calibrate())
        after_mib = [resident_mib(target.processes) for target in targets]
        _check_charges(targets)
    for case in cases:
        yield from rows_of(case, runs[case])
    yield from map(_footprint, targets, idle_mib, after_mib)
    yield _calibration(calibration_ms)


def _check_charges(targets: Sequence[Target]) -> None:
    for target in targets:
        if target.charge_check is not None:
            target.charge_check.check()


def _footprint(target: Target, idle_mib: Mapping[str, float], after_mib: Mapping[str, float]) -> Row:
    counted = [process for process in idle_mib if process not in UNCOUNTED]
    figures: dict[str, float | None] = {
        "first answer s": target.first_answer_s,
        "idle MiB": sum(idle_mib[process] for process in counted),
        "after MiB": sum(after_mib[process] for process in counted),
        **{f"{process} MiB": idle_mib.get(process) for process in (*OURS, SUPERVISOR)},
    }
    return Row(FOOTPRINT, target.name, figures, 0.0)


def _calibration(took_ms: Sequence[float]) -> Row:
    figures: dict[str, float | None] = {
        "CPU ms least": min(took_ms),
        "most / least": max(took_ms) / min(took_ms),
        "disk sync p50 ms": percentile(disk_sync.time_syncs_ms(), 50),
    }
    return Row(CALIBRATION, "a fixed loop", figures, 0.0)
