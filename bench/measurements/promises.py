"""The performance goals, and whether a comparison with the relay, or with other gateways, meets them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from bench.measurements.agents import KNOWN, NEW
from bench.measurements.beside_relay import BURST, FOOTPRINT, MANY, ONE, PACED, SLOW_10, SLOW_50, SLOW_100, SLOW_200
from bench.report import CALIBRATION, Row, align
from bench.targets import LITELLM, ON_POSTGRESQL, ON_SQLITE, TENSORZERO


class Promise(NamedTuple):
    about: str
    measurement: str
    figure: str
    most: float
    unit: str = ""
    # True if it includes waiting for a hold to be written to disk.
    beside_disk_sync: bool = False
    # The gateway of whose figure this is a part; empty: the figure itself is meant.
    peer: str = ""

    def seen(self, figures: Mapping[tuple[str, str], Mapping[str, float | None]], target: str) -> float | None:
        """Returns the target's figure, or which part it is of the peer's."""
        value = figures.get((self.measurement, target), {}).get(self.figure)
        if value is None or not self.peer:
            return value
        of_peer = figures.get((self.measurement, self.peer), {}).get(self.figure)
        return value / of_peer if of_peer is not None and of_peer > 0 else None


_RATIO: Final = "of the relay's"
_FIRST_TOKEN: Final = "first token p99 ms"
_LATENESS: Final = "late p99 ms"
_TURN_COST: Final = "CPU ms a turn"
_ADDED: Final = "added p50 ms"

# Ordinary load comes first. The goals for cost are ratios to the relay, which is measured in the same run.
OF_CHATS: Final = (
    Promise("of the relay's CPU, 10 slow streams", SLOW_10.name, _RATIO, 2.2),
    Promise("of the relay's CPU, 50 slow streams", SLOW_50.name, _RATIO, 1.5),
    Promise("of the relay's CPU, 100 slow streams", SLOW_100.name, _RATIO, 1.4),
    Promise("of the relay's CPU, 200 slow streams", SLOW_200.name, _RATIO, 1.3),
    Promise("first token p99, 10 slow streams", SLOW_10.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("first token p99, 50 slow streams", SLOW_50.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("first token p99, 100 slow streams", SLOW_100.name, _FIRST_TOKEN, 20.0, "ms"),
    Promise("chunks' lateness p99, 100 slow streams", SLOW_100.name, _LATENESS, 15.0, "ms"),
    Promise("chunks' lateness p99, 200 slow streams", SLOW_200.name, _LATENESS, 15.0, "ms"),
    Promise("of the relay's CPU, 64 at once", MANY.name, _RATIO, 1.3),
    Promise("of the relay's CPU, in bursts", BURST.name, _RATIO, 1.5),
    Promise("of the relay's CPU, 200 paced streams", PACED.name, _RATIO, 1.3),
    Promise("first token p99, 200 paced streams", PACED.name, _FIRST_TOKEN, 25.0, "ms"),
    Promise("chunks' lateness p99, 200 paced streams", PACED.name, _LATENESS, 15.0, "ms"),
    Promise("added p50, one at a time", ONE.name, _ADDED, 3.0, "ms", beside_disk_sync=True),
    Promise("memory of the four services, idle", FOOTPRINT, "idle MiB", 330.0, "MiB"),
    Promise("start to first answer", FOOTPRINT, "first answer s", 3.0, "s"),
)
OF_PROMPTS: Final = (
    Promise("of the relay's CPU, 21 KB with tools, known", KNOWN["21 KB"].name, _RATIO, 4.0),
    Promise("of the relay's CPU, 21 KB with tools, new", NEW["21 KB"].name, _RATIO, 4.0),
    Promise("of the relay's CPU, 300 KB, known", KNOWN["300 KB"].name, _RATIO, 3.0),
    Promise("of the relay's CPU, 300 KB, new", NEW["300 KB"].name, _RATIO, 8.0),
    Promise("of the relay's CPU, 1 MB, known", KNOWN["1 MB"].name, _RATIO, 5.0),
    Promise("added p50, 300 KB, known", KNOWN["300 KB"].name, _ADDED, 8.0, "ms"),
    Promise("added p50, 300 KB, new", NEW["300 KB"].name, _ADDED, 15.0, "ms"),
    Promise("added p50, 1 MB, known", KNOWN["1 MB"].name, _ADDED, 30.0, "ms"),
)
_OF_LITELLMS: Final = {"21 KB": 0.25, "100 KB": 0.25, "300 KB": 0.25, "1 MB": 1.0}
BESIDE_PEERS: Final = tuple(
    Promise(f"{what} of {peer}'s, {size}, known", KNOWN[size].name, figure, most, peer=peer)
    for peer, parts in ((LITELLM, _OF_LITELLMS), (TENSORZERO, dict.fromkeys(_OF_LITELLMS, 1.0)))
    for size, most in parts.items()
    for what, figure in (("CPU", _TURN_COST), ("added p50", _ADDED))
)
PROMISES: Final = (*OF_CHATS, *OF_PROMPTS, *BESIDE_PEERS)


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
            seen = promise.seen(figures, target)
            if seen is None:
                continue
            most = promise.most
            if promise.beside_disk_sync:
                most += next(row.figures["disk sync p50 ms"] or 0.0 for row in rows if row.measurement == CALIBRATION)
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
