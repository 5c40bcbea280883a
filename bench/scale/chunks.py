"""Measures longer streams: every further chunk should cost as much as the earlier ones."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from bench.chats import Case, started_upstream
from bench.report import Progress, Row
from bench.runs import SETTLE_S, Run, run, warm_up
from bench.targets import ON_SQLITE, SUPERVISOR, started_legato

MEASUREMENT: Final = "longer streams"
FURTHER: Final = "µs a further chunk"
LENGTHS: Final = (10, 100, 1000)
CASES: Final = tuple(Case(f"{chunks:,} chunks", in_flight=16, chunks=chunks) for chunks in LENGTHS)
ROUNDS: Final = 5


def steps(rounds: int = ROUNDS) -> int:
    return 1 + rounds * len(CASES)


def measure(progress: Progress, seconds: float, rounds: int = ROUNDS) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, ExitStack() as opened:
        folder = Path(name)
        upstream = opened.enter_context(started_upstream(folder))
        progress.step("starting what is measured", expected_s=5)
        target = opened.enter_context(started_legato(ON_SQLITE, upstream, folder, progress))
        warm_up(target, folder, progress)
        runs: dict[Case, list[Run]] = {case: [] for case in CASES}
        for _ in range(rounds):
            for case in CASES:
                progress.step(f"{MEASUREMENT}: {case.name}", seconds + SETTLE_S)
                runs[case].append(run(target, case, upstream, folder, progress, seconds))
        assert target.charge_check is not None
        target.charge_check.check()
    yield from rows_of(runs)


def rows_of(runs: dict[Case, list[Run]]) -> Iterator[Row]:
    shorter: tuple[int, float] | None = None
    for case, of_case in runs.items():
        stream_us = median(_stream_us(one) for one in of_case)
        further = (stream_us - shorter[1]) / (case.chunks - shorter[0]) if shorter else None
        figures: dict[str, float | None] = {
            "CPU ms a stream": stream_us / 1000,
            "µs a chunk": stream_us / case.chunks,
            FURTHER: further,
            "chunks/s": median(one.outcome.chunks_per_s for one in of_case),
            "refused": float(sum(one.outcome.refused for one in of_case)),
        }
        shorter = case.chunks, stream_us
        yield Row(MEASUREMENT, case.name, figures, median(one.others_share for one in of_case))


def verdict(rows: Sequence[Row]) -> str:
    short_us, long_us = (us for row in rows if (us := row.figures[FURTHER]) is not None)
    return (
        f"A chunk costs {long_us:.1f} µs among a thousand, and {short_us:.1f} µs among a hundred, beyond what the"
        " stream itself costs."
    )


def _stream_us(one: Run) -> float:
    ours_s = sum(cpu_s for process, cpu_s in one.cpu_s.items() if process != SUPERVISOR)
    return 1e6 * ours_s / one.outcome.answered
