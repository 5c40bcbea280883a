"""Measures how much other streams are delayed while large prompts are counted, and the CPU time that counting takes.

Many streams run through the whole service, with a chunk every 20 ms each. Their readers record the gaps between chunks:
first without large prompts, then while a prompt of a given size arrives every second.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.children import Provider, result_of, started_provider
from bench.measurements.gaps import WARM_UP_S, Order, Outcome
from bench.report import Progress, Row, percentile
from tests.support.service import NEVER_SATURATED, Service

MEASUREMENT: Final = "big prompts"
CHUNK_EVERY_S: Final = 0.02
SIZES_BYTES: Final = {"none": 0, "100 KB": 100_000, "1 MB": 1_000_000, "4 MB": 4_000_000}
GROWTH_MOST_MS: Final = 20.0
STREAMS: Final = 50
# Each round measures all sizes.
ROUNDS: Final = 3
# The processes that handle a prompt, by their names in `legato up`.
PROCESSES: Final = {"edge": "edge-1", "router": "router"}

SETTINGS: Final = {
    **NEVER_SATURATED,
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
}


def measure(seconds: float, progress: Progress) -> Iterator[Row]:
    progress.step(MEASUREMENT, expected_s=WARM_UP_S + ROUNDS * len(SIZES_BYTES) * seconds + 5)
    with paced_provider() as (provider, folder), Service(provider, SETTINGS) as service:
        yield from measure_on(service, folder, STREAMS, seconds, ROUNDS, progress)


@contextmanager
def paced_provider() -> Iterator[tuple[Provider, Path]]:
    """A paced provider and a folder for the measurement."""
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        with started_provider(["bench.providers.paced", str(CHUNK_EVERY_S)], folder) as provider:
            yield provider, folder


def measure_on(
    service: Service, folder: Path, streams: int, seconds: float, rounds: int, progress: Progress
) -> Iterator[Row]:
    host, port = service.address
    api_key = service.new_key(service.new_account("1000000"))
    processes = {name: service.process_id(process) for name, process in PROCESSES.items()}
    order = Order(host, port, api_key, streams, list(SIZES_BYTES.values()), seconds, rounds, processes)
    result = result_of("bench.measurements.gaps", msgspec.json.encode(order), folder, progress)
    yield from rows_of(msgspec.json.decode(result, type=Outcome))


def rows_of(outcome: Outcome) -> Iterator[Row]:
    undisturbed_p99_ms = percentile(outcome.gaps_ms[0], 99)
    for index, case in enumerate(SIZES_BYTES):
        gaps_ms = outcome.gaps_ms[index]
        p99_ms = percentile(gaps_ms, 99)
        figures: dict[str, float | None] = {
            "prompts": float(outcome.prompts[index]),
            "slowest s": outcome.prompt_s[index] if outcome.prompts[index] else None,
            **{f"CPU ms a prompt: {name}": _cpu_ms_a_prompt(outcome, index, name) for name in PROCESSES},
            "gap p50 ms": percentile(gaps_ms, 50),
            "gap p99 ms": p99_ms,
            "longest ms": max(gaps_ms),
            "p99 grows ms": p99_ms - undisturbed_p99_ms,
        }
        yield Row(MEASUREMENT, case, figures, outcome.others_share[index])


def _cpu_ms_a_prompt(outcome: Outcome, index: int, process: str) -> float | None:
    """Returns the CPU time beyond that of the streams, which are the same without prompts."""
    if not outcome.prompts[index]:
        return None
    streams_s = outcome.cpu_s[0][process] * outcome.elapsed_s[index] / outcome.elapsed_s[0]
    return 1000 * (outcome.cpu_s[index][process] - streams_s) / outcome.prompts[index]


def verdict(rows: list[Row]) -> str:
    """Checks the goal that a large prompt does not delay other streams."""
    [growth_ms] = [row.figures["p99 grows ms"] for row in rows if row.case == "4 MB"]
    assert growth_ms is not None
    kept = "kept" if growth_ms < GROWTH_MOST_MS else "BROKEN"
    return (
        f"With prompts of 4 MB the p99 gap of other streams grows by {growth_ms:.1f} ms; promised are less than"
        f" {GROWTH_MOST_MS:.0f} ms: {kept}."
    )
