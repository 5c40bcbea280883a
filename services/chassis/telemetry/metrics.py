"""Counters, gauges and histograms of a process, for Prometheus.

Every chat updates them, so that must be cheap: what is counted is a number in a dictionary or in an object, and a
`Histogram` two of them. Prometheus' own library reads them when it is scraped, and has names and text. Labels have few
values, all defined by us: classes, outcomes, reasons, the models of the routes; never an account, a key or a request.

Each process has one registry, created at startup and served by `http_port.py`.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

# For steps that take from microseconds to seconds.
STEP_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
# Buckets from OpenTelemetry's conventions for generative AI.
REQUEST_BOUNDS_S: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_TOKEN_BOUNDS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
OUTPUT_TOKEN_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKEN_BOUNDS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


# What is counted, by label values: `counts["forte", "complete"] += 1`, and with one label `counts["forte",] += 1`.
Counts = Counter[tuple[str, ...]]


class Histogram:
    """Observes for a fifth of what the library's own costs, in one call instead of six."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        # Observations in each bucket; the last one has no upper bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        # The last traced observation in each bucket that has one.
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def record_trace(self, value: float, trace_id: str) -> None:
        """Records the trace in which this value was observed."""
        self.exemplars[bisect_left(self.bounds, value)] = Exemplar({"trace_id": trace_id}, value, time.time())

    def buckets(self) -> list[tuple[str, float, Exemplar | None]]:
        """Returns each upper bound, the count up to it, and a trace, as Prometheus expects."""
        bounds = map(floatToGoString, (*self.bounds, float("inf")))
        traces = map(self.exemplars.get, range(len(self.counts)))
        return list(zip(bounds, accumulate(self.counts), traces, strict=True))


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Returns about the value that this share of a histogram's observations is at most; None if there are none."""
    below, wanted = 0, share * sum(counts)
    for index, count in enumerate(counts[: len(bounds)]):
        if count and below + count >= wanted:
            start = bounds[index - 1] if index else 0.0
            return start + (bounds[index] - start) * (wanted - below) / count
        below += count
    # Nothing is known beyond the last bound.
    return bounds[-1] if wanted else None


Value = float | Histogram
# Returns a value or, where there are labels, values by the value of the label, or by a tuple of those of several.
Read = Callable[[], Value | Mapping[Any, Value]]


class _Reader(Collector):
    """Reads one metric when it is scraped, on the event loop."""

    def __init__(self, new_metric: Callable[[], Any], read: Read) -> None:
        self._new_metric = new_metric
        self._read = read

    def describe(self) -> Iterator[Metric]:
        yield self._new_metric()

    def collect(self) -> Iterator[Metric]:
        metric, found = self._new_metric(), self._read()
        for labels, value in (found if isinstance(found, Mapping) else {(): found}).items():
            values = (value.buckets(), value.total) if isinstance(value, Histogram) else (value,)
            metric.add_metric([labels] if isinstance(labels, str) else labels, *values)
        yield metric


class Registry(CollectorRegistry):
    def gauge(self, name: str, meaning: str, read: Read, *labels: str) -> None:
        self.register(_Reader(partial(GaugeMetricFamily, name, meaning, labels=labels), read))

    def counter(self, name: str, meaning: str, read: Read, *labels: str) -> None:
        """Registers a counter; `name` is without `_total`, which is appended."""
        self.register(_Reader(partial(CounterMetricFamily, name, meaning, labels=labels), read))

    def histogram(self, name: str, meaning: str, read: Read, *labels: str) -> None:
        self.register(_Reader(partial(HistogramMetricFamily, name, meaning, labels=labels), read))

    def counts(self, name: str, meaning: str, *labels: str) -> Counts:
        """Registers counters of which each is there once it was counted."""
        counted: Counts = Counter()
        self.counter(name, meaning, lambda: counted, *labels)
        return counted

    def histograms(
        self, name: str, meaning: str, bounds: Sequence[float], *labels: str
    ) -> defaultdict[tuple[str, ...], Histogram]:
        observed: defaultdict[tuple[str, ...], Histogram] = defaultdict(lambda: Histogram(bounds))
        self.histogram(name, meaning, lambda: observed, *labels)
        return observed


def new_registry() -> Registry:
    """Creates a registry with the process metrics of the operating system."""
    registry = Registry()
    ProcessCollector(registry=registry)
    registry.gauge("process_tasks", "Tasks of the event loop.", _tasks)
    return registry


def _tasks() -> float:
    """Counts the tasks of the running event loop; 0 without one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


def show_exchanges(registry: Registry, message_items: Mapping[str, Histogram]) -> None:
    """Registers each exchange's items per message."""
    registry.histogram(
        "legato_exchange_message_items", "Items per message of an exchange.", lambda: message_items, "exchange"
    )
