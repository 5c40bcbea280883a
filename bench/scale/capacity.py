"""Checks the capacity table of docs/runbooks/scale-out.md: as many streams as it plans for one edge and one router."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.chats import Case, started_upstream
from bench.report import Progress, Row
from bench.runs import SETTLE_S, Run, run, warm_up
from bench.targets import ON_SQLITE, OURS, started_legato

# Streams that the table plans for one core of an edge and one of a router, by the chunks that each has per second.
PLANNED: Final = {50: 180, 20: 380}
# The part of a core that the table plans with.
PLANNED_CORES: Final = 0.6
CHUNKS: Final = 60
CASES: Final = {
    Case(
        f"{streams} streams, {rate} chunks per second each",
        in_flight=streams,
        chunks=CHUNKS,
        pause_us=1_000_000 // rate,
    ): rate
    for rate, streams in PLANNED.items()
}


def steps() -> int:
    return 1 + len(CASES)


def measure(progress: Progress, seconds: float) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        progress.step("starting", expected_s=5)
        with started_upstream(folder) as upstream, started_legato(ON_SQLITE, upstream, folder, progress) as target:
            warm_up(target, folder, progress)
            for case, rate in CASES.items():
                # Until all of them have begun fewer run, so it takes several times as long as one.
                watched_s = max(seconds, 4 * CHUNKS / rate)
                progress.step(case.name, watched_s + SETTLE_S)
                yield row_of(case, rate, run(target, case, upstream, folder, progress, watched_s))
            assert target.charge_check is not None
            target.charge_check.check()


def row_of(case: Case, rate: int, of_case: Run) -> Row:
    """Returns the cores that each process takes while all streams run: they begin and end one after the other."""
    chunks_per_s = case.in_flight * rate
    figures: dict[str, float | None] = {
        **{f"{kind} cores": chunks_per_s * (of_case.cost([kind]) or 0.0) / 1e6 for kind in OURS},
        "first token p99 ms": of_case.outcome.first_ms.p99 if of_case.outcome.first_ms else None,
        "late p99 ms": of_case.outcome.late_ms.p99 if of_case.outcome.late_ms else None,
        "refused": float(of_case.outcome.refused),
    }
    return Row("capacity of a core", case.name, figures, of_case.others_share)


def verdict(rows: Sequence[Row]) -> str:
    most = max(row.figures[f"{kind} cores"] or 0.0 for row in rows for kind in OURS)
    kept = "kept" if most <= PLANNED_CORES else "BROKEN"
    return f"The planned streams take a process {most:.2f} of a core; the table says {PLANNED_CORES:g}: {kept}."
