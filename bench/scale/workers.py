"""Measures the cost of a chat with more edges and more routers, in turns, on the same CPUs.

Slow streams grow with the processes, so that each of them has the same load whatever their number is; other cases are
the same for all, and with more processes each of those has less to do.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from bench.chats import Case, Upstream, started_upstream
from bench.measurements.beside_relay import BURST, MANY, SLOW_10
from bench.report import Progress, Row
from bench.runs import SETTLE_S, Run, run, warm_up
from bench.targets import CLASS, OURS, SETTINGS, ChargeCheck, Target
from tests.support.service import Service

# The number of streams is that of each edge or of each router, of whichever there are more.
SLOW: Final = msgspec.structs.replace(SLOW_10, name="20 slow streams per process", in_flight=20)
CASES: Final = (SLOW, MANY, BURST)
ROUNDS: Final = 3
OF_FIRST: Final = "of the first's"
PROMISED_MOST: Final = 1.15


class Crew(NamedTuple):
    edges: int
    routers: int

    @property
    def name(self) -> str:
        return f"{self.edges} edge{'s' * (self.edges > 1)}, {self.routers} router{'s' * (self.routers > 1)}"


CREWS: Final = tuple(Crew(edges, routers) for routers, edges in product((1, 2, 4), repeat=2))


def load_of(case: Case, crew: Crew) -> Case:
    """Returns the case with as many streams as the crew shares."""
    return msgspec.structs.replace(case, in_flight=case.in_flight * max(crew)) if case == SLOW else case


def steps(rounds: int = ROUNDS, crews: Sequence[Crew] = CREWS) -> int:
    return len(crews) * (1 + rounds * len(CASES))


def measure(progress: Progress, seconds: float, rounds: int = ROUNDS, crews: Sequence[Crew] = CREWS) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name, ExitStack() as opened:
        folder = Path(name)
        upstream = opened.enter_context(started_upstream(folder))
        targets = {}
        for crew in crews:
            progress.step(f"starting {crew.name}", expected_s=5)
            targets[crew] = opened.enter_context(_started(crew, upstream))
            warm_up(targets[crew], folder, progress)
        runs: dict[tuple[Case, Crew], list[Run]] = {key: [] for key in product(CASES, crews)}
        for _ in range(rounds):
            for (case, crew), of_crew in runs.items():
                progress.step(f"{case.name}: {crew.name}", seconds + SETTLE_S)
                of_crew.append(run(targets[crew], load_of(case, crew), upstream, folder, progress, seconds))
        for target in targets.values():
            assert target.charge_check is not None
            target.charge_check.check()
    for (case, crew), of_crew in runs.items():
        yield row_of(case, crew, of_crew, runs[case, crews[0]])


def verdict(rows: Sequence[Row]) -> str:
    most = max(row.figures[OF_FIRST] or 0.0 for row in rows if row.measurement == SLOW.name)
    kept = "kept" if most <= PROMISED_MOST else "BROKEN"
    return (
        f"With more edges and routers, each with the same load, a chunk costs up to {most:.2f} times as much as with"
        f" one of each; promised are {PROMISED_MOST:g}: {kept}."
    )


@contextmanager
def _started(crew: Crew, upstream: Upstream) -> Iterator[Target]:
    with Service(upstream, SETTINGS, workers=crew.edges, routers=crew.routers) as service:
        charge_check = ChargeCheck(service)
        processes = {name: state["pid"] for name, state in service.states().items()}
        yield Target(crew.name, service.address[1], processes, charge_check.api_key, CLASS, charge_check=charge_check)


def row_of(case: Case, crew: Crew, runs: Sequence[Run], of_first: Sequence[Run]) -> Row:
    cost, first_cost = (median(one.whole_cost() or 0.0 for one in several) for several in (runs, of_first))
    speeds = [one.outcome.chunks_per_s if case.chunks else one.outcome.chats_per_s for one in runs]
    first_ms = [times.p99 for one in runs if (times := one.outcome.first_ms or one.outcome.whole_ms)]
    figures: dict[str, float | None] = {
        "CPU µs a chunk" if case.chunks else "CPU ms a chat": cost,
        OF_FIRST: cost / first_cost,
        **{kind: median(_cost_of_kind(one, kind) for one in runs) for kind in OURS},
        "chunks/s" if case.chunks else "chats/s": median(speeds),
        "first token p99 ms" if case.chunks else "p99 ms": median(first_ms),
        "refused": float(sum(one.outcome.refused for one in runs)),
    }
    return Row(case.name, crew.name, figures, median(one.others_share for one in runs))


def _cost_of_kind(one: Run, kind: str) -> float:
    """Sums all processes of one kind."""
    return one.cost([name for name in one.cpu_s if name.partition("-")[0] == kind]) or 0.0
