"""What a process counts of its own doings, for Prometheus to read.

Counting is on the way of every chat, so it is next to nothing: a `Count` is a number that is added to, a `Histogram`
two of them. Names and text come in only when somebody reads. Labels have few values, all of them ours: classes,
outcomes, reasons, the models of the routes; never an account, a key or a request.

Each process has one registry, made where it is put together, and served by `operations.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.chassis.certificates import Certificates

# Of steps that take from some microseconds to some seconds.
STEP_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
# As OpenTelemetry's conventions for generative AI want them.
REQUEST_BOUNDS_S: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_TOKEN_BOUNDS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
OUTPUT_TOKEN_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKEN_BOUNDS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# The values of the labels, and what was read.
Readings = Callable[[], Iterable[tuple[Sequence[str], float]]]


class Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        # How many lay in each bucket; the last one has no upper bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each with those below it, as Prometheus wants them."""
        cumulated, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            cumulated += count
            buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), float(cumulated)))
        return buckets


MemberT = TypeVar("MemberT", bound=Count | Histogram)


class Family(dict[tuple[str, ...], MemberT], Generic[MemberT]):
    """By the values of its labels; a member comes into being when it is first asked for. `family["forte", "complete"]`,
    and with one label `family["forte",]`."""

    def __init__(self, make: Callable[[], MemberT]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: tuple[str, ...]) -> MemberT:
        member = self[labels] = self._make()
        return member


def new_registry() -> CollectorRegistry:
    """With what the operating system knows about the process: time, memory, descriptors."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def counts(registry: CollectorRegistry, name: str, meaning: str, labels: Sequence[str]) -> Family[Count]:
    """`name` without `_total`, which is added where it is read."""
    family = Family(Count)
    counters_of(registry, name, meaning, labels, lambda: [(each, count.value) for each, count in family.items()])
    return family


def histograms(
    registry: CollectorRegistry, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float]
) -> Family[Histogram]:
    family = Family(lambda: Histogram(bounds))
    histograms_of(registry, name, meaning, labels, family.items)
    return family


# What is counted elsewhere is read when somebody looks, on the event loop.


def gauge(registry: CollectorRegistry, name: str, meaning: str, read: Callable[[], float]) -> None:
    gauges(registry, name, meaning, (), lambda: [((), read())])


def gauges(
    registry: CollectorRegistry,
    name: str,
    meaning: str,
    labels: Sequence[str],
    read: Readings,
) -> None:
    registry.register(_Reader(lambda: _filled(GaugeMetricFamily(name, meaning, labels=labels), read())))


def counters_of(
    registry: CollectorRegistry,
    name: str,
    meaning: str,
    labels: Sequence[str],
    read: Readings,
) -> None:
    """What only grows."""
    registry.register(_Reader(lambda: _filled(CounterMetricFamily(name, meaning, labels=labels), read())))


def histograms_of(
    registry: CollectorRegistry,
    name: str,
    meaning: str,
    labels: Sequence[str],
    read: Callable[[], Iterable[tuple[Sequence[str], Histogram]]],
) -> None:
    def collect() -> Metric:
        metric = HistogramMetricFamily(name, meaning, labels=labels)
        for values, histogram in read():
            metric.add_metric(values, histogram.buckets, histogram.total)
        return metric

    registry.register(_Reader(collect))


def show_certificate(registry: CollectorRegistry, certificates: Certificates | None) -> None:
    """Where there is one."""
    if certificates is not None:
        gauge(
            registry,
            "legato_certificate_expiry_timestamp_seconds",
            "When the certificate ends by which this process proves who it is.",
            certificates.expires_at_s,
        )


def show_exchanges(registry: CollectorRegistry, message_items: Mapping[str, Histogram]) -> None:
    """By whom they are kept with."""
    histograms_of(
        registry,
        "legato_exchange_message_items",
        "Items that share one message to the other side of an exchange.",
        ["exchange"],
        lambda: [([name], histogram) for name, histogram in message_items.items()],
    )


def _filled(
    metric: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric


class _Reader(Collector):
    def __init__(self, read: Callable[[], Metric]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield self._read()

    def describe(self) -> Iterable[Metric]:
        return []
