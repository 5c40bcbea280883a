"""Measures the whole service when more chats arrive than it can serve.

First the peak is measured, with slightly more concurrent chats than the provider has slots. Then chats arrive at
multiples of that rate, at random times and regardless of earlier ones (open loop). Goodput counts complete answers
only. Two bottlenecks are measured: a provider with few slots, whose limit the routes state, and a provider that
answers at once, so that the CPU is the limit; the load generator then uses the same CPU.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.children import result_of, started_provider
from bench.clients import Offer, Order, Outcome
from bench.report import Progress, Row
from tests.support.service import ROUTES, Service

CURVE: Final = "overload"
FAIRNESS: Final = "greedy key at 3x"
EDGE_CURVE: Final = "overload of the edge"

SLOTS: Final = 16
# Slightly more chats than the provider has slots: the peak is measured with them, and the model's limit. It queues the
# others silently.
IN_FLIGHT: Final = SLOTS + SLOTS // 4
MODEL: Final = "max_output_tokens = 131072"
FIRST_S: Final = 0.1
ANSWER_S: Final = 0.4

MULTIPLES: Final = (0.5, 1.0, 1.5, 2.0, 3.0)
EDGE_MULTIPLES: Final = (1.0, 3.0)
KEYS: Final = 10
GREEDY_MULTIPLE: Final = 3.0
# The greedy key's share of the offered load; the others share the rest.
GREEDY_SHARE: Final = 0.9
WARM_UP_S: Final = 1.0
# Shorter runs show nothing: several answers must complete.
SHORTEST_S: Final = 1.0
STEPS: Final = 1 + len(MULTIPLES) + 1 + 1 + len(EDGE_MULTIPLES)
GOODPUT_LEAST: Final = 0.9

# Rate limits are off, since saturation is measured.
SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "LEGATO_EDGE_QUEUEING_S": "0.05",
}


class NothingAnswered(Exception):
    """The measurement was too short for this machine."""


class OverloadHarness:
    """A service with its clients."""

    def __init__(self, service: Service, folder: Path, seconds: float, progress: Progress) -> None:
        self._service = service
        self._folder = folder
        self._seconds = max(seconds, SHORTEST_S)
        self._warm_up_s = min(self._seconds, WARM_UP_S)
        self._progress = progress
        account = service.new_account("1000000")
        self._keys = [service.new_key(account) for _ in range(KEYS)]

    def find_peak(self, name: str, in_flight: int) -> Outcome:
        outcome = self._put_load(name, [Offer(key) for key in self._keys], in_flight)
        if not outcome.total_ms:
            raise NothingAnswered(f"Nothing was answered:\n{self._service.log_text()}")
        return outcome

    def offer(self, name: str, chats_per_s: float) -> Outcome:
        return self._put_load(name, [Offer(key, chats_per_s / KEYS) for key in self._keys])

    def offer_greedily(self, name: str, chats_per_s: float) -> Outcome:
        polite_per_s = chats_per_s * (1 - GREEDY_SHARE) / (KEYS - 1)
        greedy, *polite = self._keys
        offers = [Offer(greedy, chats_per_s * GREEDY_SHARE), *(Offer(key, polite_per_s) for key in polite)]
        return self._put_load(name, offers)

    def _put_load(self, name: str, offers: list[Offer], in_flight: int = 0) -> Outcome:
        self._progress.step(name, expected_s=self._warm_up_s + self._seconds + 1)
        host, port = self._service.address
        order = Order(host, port, offers, self._warm_up_s, self._seconds, in_flight)
        result = result_of("bench.clients", msgspec.json.encode(order), self._folder, self._progress)
        return msgspec.json.decode(result, type=Outcome)


def measure(seconds: float, progress: Progress) -> Iterator[Row]:
    with _harness(seconds, progress, SLOTS, FIRST_S, ANSWER_S) as harness:
        yield from measure_curve(harness, MULTIPLES, GREEDY_MULTIPLE)
    # The provider answers at once.
    with _harness(seconds, progress, 0, 0.0, 0.0) as harness:
        yield from _measure_edge(harness)


def verdict(rows: list[Row]) -> str:
    """Checks the goal that goodput under overload is close to the peak."""
    [share] = [row.figures["of the peak %"] for row in rows if (row.measurement, row.case) == (CURVE, _case(3.0))]
    assert share is not None
    kept = "kept" if share > 100 * GOODPUT_LEAST else "BROKEN"
    return f"Goodput at 3x is {share:.0f} % of the peak; promised are more than {GOODPUT_LEAST:.0%}: {kept}."


def measure_curve(harness: OverloadHarness, multiples: Sequence[float], greedy_multiple: float) -> Iterator[Row]:
    peak = harness.find_peak(f"{CURVE}: peak", IN_FLIGHT)
    outcomes = [
        (_case(multiple), harness.offer(f"{CURVE}: {_case(multiple)}", multiple * peak.per_s("done")))
        for multiple in multiples
    ]
    yield from _curve(CURVE, [("peak", peak), *outcomes])
    outcome = harness.offer_greedily(FAIRNESS, greedy_multiple * peak.per_s("done"))
    greedy, *polite = outcome.tallies
    for name, tallies in (("the greedy key", [greedy]), ("nine polite keys", polite)):
        ended = sum(tally.done + tally.refused + tally.failed for tally in tallies)
        done = sum(tally.done for tally in tallies)
        figures: dict[str, float | None] = {
            "offered/s": sum(tally.sent for tally in tallies) / outcome.seconds,
            "goodput/s": done / outcome.seconds,
            "served %": 100 * done / max(1, ended),
        }
        yield Row(FAIRNESS, name, figures, outcome.others_share)


def _measure_edge(harness: OverloadHarness) -> Iterator[Row]:
    peak = harness.find_peak(f"{EDGE_CURVE}: peak", 32)
    outcomes = [
        (_case(multiple), harness.offer(f"{EDGE_CURVE}: {_case(multiple)}", multiple * peak.per_s("done")))
        for multiple in EDGE_MULTIPLES
    ]
    yield from _curve(EDGE_CURVE, [("peak", peak), *outcomes])


def _curve(measurement: str, outcomes: list[tuple[str, Outcome]]) -> Iterator[Row]:
    best_per_s = max(outcome.per_s("done") for _, outcome in outcomes)
    for case, outcome in outcomes:
        figures: dict[str, float | None] = {
            "offered/s": outcome.per_s("sent"),
            "goodput/s": outcome.per_s("done"),
            "of the peak %": 100 * outcome.per_s("done") / best_per_s if best_per_s else 0.0,
            "refused/s": outcome.per_s("refused"),
            "errors": float(sum(tally.failed for tally in outcome.tallies)),
            "first token p50 ms": outcome.first_token_percentile_ms(50),
            "p99 ms": outcome.first_token_percentile_ms(99),
            "whole p50 ms": outcome.total_percentile_ms(50),
            "whole p99 ms": outcome.total_percentile_ms(99),
        }
        yield Row(measurement, case, figures, outcome.others_share)


def _case(multiple: float) -> str:
    return f"{multiple:g}x"


@contextmanager
def _harness(
    seconds: float, progress: Progress, slots: int, first_s: float, answer_s: float
) -> Iterator[OverloadHarness]:
    limit = f"\nconcurrency = {IN_FLIGHT}" if slots else ""
    with (
        tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name,
        started_provider(["bench.providers.slots", str(slots), str(first_s), str(answer_s)], Path(name)) as provider,
        Service(provider, SETTINGS, routes=ROUTES.replace(MODEL, f"{MODEL}{limit}")) as service,
    ):
        yield OverloadHarness(service, Path(name), seconds, progress)
