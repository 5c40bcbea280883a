"""Legato's promises about its cost, and whether a measurement beside the relay has seen them kept."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from bench.beside_relay import BURST, FOOTPRINT, MANY, ONE, PACED
from bench.report import CALIBRATION, Row, align
from bench.targets import ON_POSTGRESQL, ON_SQLITE


class Promise(NamedTuple):
    about: str
    measurement: str
    figure: str
    most: float
    unit: str = ""
    # Every chat waits for its credit to be held on disk.
    beside_disk_sync: bool = False
    # Whether the README's short table has it.
    is_headline: bool = False


PROMISES: Final = (
    Promise("CPU a chat, 64 at once", MANY.name, "CPU ms a chat", 0.45, "ms", is_headline=True),
    Promise("of the relay's CPU, 64 at once", MANY.name, "of the relay's", 0.95),
    Promise("CPU a chunk, in bursts", BURST.name, "CPU µs a chunk", 15.0, "µs", is_headline=True),
    Promise("of the relay's CPU, in bursts", BURST.name, "of the relay's", 1.6),
    Promise("CPU a chunk, 200 paced streams", PACED.name, "CPU µs a chunk", 70.0, "µs", is_headline=True),
    Promise("of the relay's CPU, 200 paced streams", PACED.name, "of the relay's", 1.3),
    Promise("first token p99, 200 paced streams", PACED.name, "first token p99 ms", 40.0, "ms"),
    Promise("chunks' lateness p99, 200 paced streams", PACED.name, "late p99 ms", 30.0, "ms"),
    Promise("added p50, one at a time", ONE.name, "added p50 ms", 3.0, "ms", beside_disk_sync=True),
    Promise("memory of the four services, idle", FOOTPRINT, "idle MiB", 260.0, "MiB", is_headline=True),
    Promise("start to first answer", FOOTPRINT, "first answer s", 3.0, "s", is_headline=True),
)


class Verdict(msgspec.Struct, frozen=True):
    target: str
    about: str
    seen: float
    most: float
    unit: str
    is_kept: bool


def verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    figures = {(row.measurement, row.case): row.figures for row in rows}
    for target in (ON_SQLITE, ON_POSTGRESQL):
        for promise in PROMISES:
            seen = figures.get((promise.measurement, target), {}).get(promise.figure)
            if seen is None:
                continue
            most = promise.most
            if promise.beside_disk_sync:
                [sync_ms] = [row.figures["disk sync p50 ms"] for row in rows if row.measurement == CALIBRATION]
                most += sync_ms or 0.0
            yield Verdict(target, promise.about, seen, most, promise.unit, is_kept=seen <= most)


def verdict(rows: Sequence[Row]) -> str:
    """A line for each promise, with a column for each store."""
    all_verdicts = list(verdicts(rows))
    lines = [["promised are at most", "", *dict.fromkeys(one.target for one in all_verdicts)]]
    for promise in PROMISES:
        of_promise = [one for one in all_verdicts if one.about == promise.about]
        if of_promise:
            lines.append([promise.about, _amount(of_promise[0].most, promise.unit), *map(_judged, of_promise)])
    return "\n".join(align(lines))


def _judged(verdict: Verdict) -> str:
    return f"{_amount(verdict.seen, verdict.unit)}: {'kept' if verdict.is_kept else 'BROKEN'}"


def _amount(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".rstrip()
