"""Compares the CPU time of chats over gRPC with that of the same chats over HTTP, on one service, in turns."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from bench.chats import AnswersWrong, Case, Upstream, started_upstream
from bench.children import result_of
from bench.processors import Spent
from bench.report import Progress, Row, percentile
from bench.runs import SETTLE_S, warm_up
from bench.targets import CLASS, ON_SQLITE, OURS, SETTINGS, ChargeCheck, legato_target
from bench.transport_load import Order, Outcome
from tests.support.rpc_chats import socket_of
from tests.support.service import Service

MEASUREMENT: Final = "gRPC beside HTTP"
HTTP, RPC = "HTTP", "gRPC"
RATIO: Final = "of HTTP's"
MOST_OF_HTTPS: Final = 1.2


class Load(NamedTuple):
    case: Case
    # Each client begins a chat so often; 0: at once after its last.
    every_s: float = 0.0


# Ordinary load first. Chats or chunks have their times, so that both transports have the same load: a client over gRPC
# is slower than one over HTTP, and the fewer chats there are, the dearer is each.
LOADS: Final = (
    Load(Case("8 clients, 80 chats a second", in_flight=8), every_s=0.1),
    Load(Case("10 slow streams", in_flight=10, chunks=100, pause_us=20_000)),
    Load(Case("64 clients, 160 chats a second", in_flight=64), every_s=0.4),
    Load(Case("32 clients, 64 streams a second in bursts", in_flight=32, chunks=100), every_s=0.5),
)


class Run(NamedTuple):
    # CPU ms a chat, or µs a chunk: of all our processes, and of the edge alone.
    cost: float
    edge_cost: float
    p50_ms: float
    others_share: float


def steps(rounds: int) -> int:
    return 1 + 2 * rounds * len(LOADS)


def measure(progress: Progress, seconds: float, rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        with started_upstream(folder) as upstream, Service(upstream, SETTINGS) as service:
            yield from measure_on(service, upstream, folder, progress, LOADS, seconds, rounds)


def measure_on(
    service: Service,
    upstream: Upstream,
    folder: Path,
    progress: Progress,
    loads: Sequence[Load],
    seconds: float,
    rounds: int,
) -> Iterator[Row]:
    charge_check = ChargeCheck(service)
    target = legato_target(ON_SQLITE, service, charge_check)
    addresses = {HTTP: "", RPC: socket_of(service.data)}
    progress.step("warming up", expected_s=5)
    warm_up(target, folder, progress)
    for load in loads:
        runs: dict[str, list[Run]] = {HTTP: [], RPC: []}
        for _ in range(rounds):
            for transport, address in addresses.items():
                progress.step(f"{load.case.name}: {transport}", expected_s=seconds + SETTLE_S)
                whom = address, target.port, target.api_key, CLASS
                order = Order(load.case, *whom, seconds, load.every_s, target.processes)
                runs[transport].append(_run(order, charge_check, upstream, folder, progress))
        yield from _rows(load.case, runs)
    charge_check.check()


def verdict(rows: Sequence[Row]) -> str:
    most = max(row.figures[RATIO] or 0.0 for row in rows if row.measurement.startswith(MEASUREMENT))
    kept = "kept" if most <= MOST_OF_HTTPS else "BROKEN"
    return f"A chat over gRPC takes up to {most:.2f} of the CPU time over HTTP; promised are {MOST_OF_HTTPS}: {kept}."


def _run(order: Order, charge_check: ChargeCheck, upstream: Upstream, folder: Path, progress: Progress) -> Run:
    case, chats_before = order.case, upstream.chats()
    result = result_of("bench.transport_load", msgspec.json.encode(order), folder, progress)
    outcome = msgspec.json.decode(result, type=Outcome)
    spent = outcome.spent or Spent({}, 0.0)
    if upstream.chats() - chats_before != outcome.answered or outcome.chunks != case.chunks * outcome.answered:
        raise AnswersWrong(f"{case.name}: {outcome.answered} answers with {outcome.chunks} chunks")
    charge_check.add_usage(outcome.prompt_tokens, outcome.completion_tokens)
    scale = 1e6 / outcome.chunks if case.chunks else 1e3 / outcome.answered
    ours_s = sum(spent.cpu_s[process] for process in OURS)
    return Run(ours_s * scale, spent.cpu_s["edge"] * scale, percentile(outcome.took_ms, 50), spent.others_share)


def _rows(case: Case, runs: dict[str, list[Run]]) -> Iterator[Row]:
    """Yields the medians of each transport. Costs are compared within a round, since what else the machine does changes
    from one to the next."""
    for transport, of_transport in runs.items():
        pairs = zip(of_transport, runs[HTTP], strict=True)
        figures: dict[str, float | None] = {
            "CPU µs a chunk" if case.chunks else "CPU ms a chat": median(run.cost for run in of_transport),
            RATIO: median(run.cost / over_http.cost for run, over_http in pairs),
            "edge": median(run.edge_cost for run in of_transport),
            "p50 ms": median(run.p50_ms for run in of_transport),
        }
        others_share = median(run.others_share for run in of_transport)
        yield Row(f"{MEASUREMENT}: {case.name}", transport, figures, others_share)
