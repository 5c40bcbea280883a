"""`python -m bench.big_prompt`: whether the streams of others stutter while big prompts are read and counted.

Many streams run through the whole service, a chunk every 20 ms each, and their readers note the gaps between chunks:
first undisturbed, then while a prompt of some size arrives every second.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.children import result_of, started_provider
from bench.gaps import WARM_UP_S, Order, Outcome
from bench.progress import Progress
from bench.report import Row, doubts, percentile, table
from tests.service import NEVER_SATURATED, Service

MEASUREMENT: Final = "big prompts"
CHUNK_EVERY_S: Final = 0.02
SIZES_BYTES: Final = {"none": 0, "100 KB": 100_000, "1 MB": 1_000_000, "4 MB": 4_000_000}
GROWTH_MOST_MS: Final = 20.0

SETTINGS: Final = {
    **NEVER_SATURATED,
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--streams", default=50, show_default=True, help="How many streams run beside the prompts.")
@click.option("--seconds", default=5.0, show_default=True, help="How long each size is measured, in each round.")
@click.option("--rounds", default=3, show_default=True, help="How often all sizes are measured, one after the other.")
def big_prompt(streams: int, seconds: float, rounds: int) -> None:
    """Measure on this machine what big prompts do to the streams of others."""
    progress = Progress(sys.stderr, steps=1)
    try:
        rows = list(measure(streams, seconds, rounds, progress))
    finally:
        progress.clear()
    click.echo(table(rows))
    click.echo(f"\n{verdict(rows)}")
    if (doubt := doubts(rows)) is not None:
        click.echo(f"\n{doubt}")


def measure(streams: int, seconds: float, rounds: int, progress: Progress) -> Iterator[Row]:
    progress.step(MEASUREMENT, expected_s=WARM_UP_S + rounds * len(SIZES_BYTES) * seconds + 5)
    with (
        tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name,
        started_provider(["bench.paced", str(CHUNK_EVERY_S)], Path(name)) as provider,
        Service(provider, SETTINGS) as service,
    ):
        host, port = service.address
        api_key = service.new_key(service.new_account("1000000"))
        order = Order(host, port, api_key, streams, list(SIZES_BYTES.values()), seconds, rounds)
        result = result_of("bench.gaps", msgspec.json.encode(order), Path(name), progress)
    yield from rows_of(msgspec.json.decode(result, type=Outcome))


def rows_of(outcome: Outcome) -> Iterator[Row]:
    undisturbed_p99_ms = percentile(outcome.gaps_ms[0], 99)
    for index, case in enumerate(SIZES_BYTES):
        gaps_ms = outcome.gaps_ms[index]
        p99_ms = percentile(gaps_ms, 99)
        figures: dict[str, float | None] = {
            "prompts": float(outcome.prompts[index]),
            "slowest s": outcome.prompt_s[index] if outcome.prompts[index] else None,
            "gap p50 ms": percentile(gaps_ms, 50),
            "gap p99 ms": p99_ms,
            "longest ms": max(gaps_ms),
            "p99 grows ms": p99_ms - undisturbed_p99_ms,
        }
        yield Row(MEASUREMENT, case, figures, outcome.others_share[index])


def verdict(rows: list[Row]) -> str:
    """On the promise that nobody hears a big prompt arrive."""
    [growth_ms] = [row.figures["p99 grows ms"] for row in rows if row.case == "4 MB"]
    assert growth_ms is not None
    kept = "kept" if growth_ms < GROWTH_MOST_MS else "BROKEN"
    return (
        f"With prompts of 4 MB the p99 gap of other streams grows by {growth_ms:.1f} ms; promised are less than"
        f" {GROWTH_MOST_MS:.0f} ms: {kept}."
    )


if __name__ == "__main__":
    big_prompt()
