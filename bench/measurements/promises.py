"""The performance goals, and whether a comparison with the relay meets them."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from bench.measurements.beside_relay import BURST, FOOTPRINT, MANY, ONE, PACED, SLOW_10, SLOW_50, SLOW_100, SLOW_200
from bench.report import CALIBRATION, Row, align
from bench.targets import ON_POSTGRESQL, ON_SQLITE


class Promise(NamedTuple):
    about: str
    measurement: str
    figure: str
    most: float
    unit: str = ""
    # True if it includes waiting for a hold to be written to disk.
    beside_disk_sync: bool = False
    # True if it is in the README's short table.
    is_headline: bool = False


_RATIO: Final = "of the relay's"
_FIRST_TOKEN: Final = "first token p99 ms"
_LATENESS: Final = "late p99 ms"

# Ordinary load comes first. The goals for cost are ratios to the relay, which is measured in the same run.
PROMISES: Final = (
    Promise("of the relay's CPU, 10 slow streams", SLOW_10.name, _RATIO, 2.2, is_headline=True),
    Promise("of the relay's CPU, 50 slow streams", SLOW_50.name, _RATIO, 1.5),
    Promise("of the relay's CPU, 100 slow streams", SLOW_100.name, _RATIO, 1.4, is_headline=True),
    Promise("of the relay's CPU, 200 slow streams", SLOW_200.name, _RATIO, 1.3),
    Promise("first token p99, 10 slow streams", SLOW_10.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("first token p99, 50 slow streams", SLOW_50.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("first token p99, 100 slow streams", SLOW_100.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("chunks' lateness p99, 100 slow streams", SLOW_100.name, _LATENESS, 15.0, "ms"),
    Promise("chunks' lateness p99, 200 slow streams", SLOW_200.name, _LATENESS, 15.0, "ms"),
    Promise("of the relay's CPU, 64 at once", MANY.name, _RATIO, 1.3, is_headline=True),
    Promise("of the relay's CPU, in bursts", BURST.name, _RATIO, 1.5),
    Promise("of the relay's CPU, 200 paced streams", PACED.name, _RATIO, 1.3),
    Promise("first token p99, 200 paced streams", PACED.name, _FIRST_TOKEN, 25.0, "ms"),
    Promise("chunks' lateness p99, 200 paced streams", PACED.name, _LATENESS, 15.0, "ms"),
    Promise("added p50, one at a time", ONE.name, "added p50 ms", 3.0, "ms", beside_disk_sync=True),
    Promise("memory of the four services, idle", FOOTPRINT, "idle MiB", 330.0, "MiB", is_headline=True),
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
    """Returns the table: a row for each goal, a column for each store."""
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
