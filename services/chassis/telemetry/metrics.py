"""Counters, gauges and histograms of a process, for Prometheus.

Every chat updates them, so that must be cheap: a `Count` is a number that is added to, a `Histogram` two of them. Names
and text are produced when Prometheus reads. Labels have few values, all defined by us: classes, outcomes, reasons, the
models of the routes; never an account, a key or a request.

Each process has one registry, created at startup and served by `http_port.py`.
"""

import asyncio
import resource
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

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


class Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        # Observations in each bucket; the last one has no upper bound.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yields each upper bound and the count up to it, as Prometheus expects."""
        cumulated = 0
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            cumulated += count
            yield bound, cumulated


MemberT = TypeVar("MemberT", bound=Count | Histogram)


class Family(dict[tuple[str, ...], MemberT], Generic[MemberT]):
    """A metric's members by label values, created on first access: `family["forte", "complete"]`, and with one label
    `family["forte",]`."""

    def __init__(self, make: Callable[[], MemberT]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: tuple[str, ...]) -> MemberT:
        member = self[labels] = self._make()
        return member


# Label values, and the value read.
Readings = Callable[[], Iterable[tuple[Sequence[str], float]]]
HistogramReadings = Callable[[], Iterable[tuple[Sequence[str], Histogram]]]


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    samples: Callable[[], Iterator[tuple[str, Mapping[str, str], float]]]


class Registry:
    """All metrics of a process."""

    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def add(self, metric: _Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"metric registered twice: {metric.name}")
        self._metrics[metric.name] = metric

    def text(self) -> bytes:
        """Renders Prometheus' text format."""
        lines = []
        for metric in self._metrics.values():
            lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{name}{_braced(labels)} {_number(value)}" for name, labels, value in metric.samples()]
        return "\n".join([*lines, ""]).encode()

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """Returns the value of one sample; None if there is no such sample."""
        for metric in self._metrics.values():
            for found, its_labels, value in metric.samples():
                if found == name and its_labels == (labels or {}):
                    return value
        return None


def _braced(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    written = repr(float(value))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(written, written)


def counts(registry: Registry, name: str, meaning: str, labels: Sequence[str]) -> Family[Count]:
    family = Family(Count)
    counters_of(registry, name, meaning, labels, lambda: [(each, count.value) for each, count in family.items()])
    return family


def histograms(
    registry: Registry, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float]
) -> Family[Histogram]:
    family = Family(lambda: Histogram(bounds))
    histograms_of(registry, name, meaning, labels, family.items)
    return family


# The metrics below are read from elsewhere when scraped, on the event loop.


def gauge(registry: Registry, name: str, meaning: str, read: Callable[[], float]) -> None:
    gauges(registry, name, meaning, (), lambda: [((), read())])


def gauges(registry: Registry, name: str, meaning: str, labels: Sequence[str], read: Readings) -> None:
    def samples() -> Iterator[tuple[str, Mapping[str, str], float]]:
        for values, value in read():
            yield name, dict(zip(labels, values, strict=True)), value

    registry.add(_Metric(name, "gauge", meaning, samples))


def counters_of(registry: Registry, name: str, meaning: str, labels: Sequence[str], read: Readings) -> None:
    """Registers counters; `name` is without `_total`, which is appended."""
    told = f"{name}_total"

    def samples() -> Iterator[tuple[str, Mapping[str, str], float]]:
        for values, value in read():
            yield told, dict(zip(labels, values, strict=True)), value

    registry.add(_Metric(told, "counter", meaning, samples))


def histograms_of(registry: Registry, name: str, meaning: str, labels: Sequence[str], read: HistogramReadings) -> None:
    def samples() -> Iterator[tuple[str, Mapping[str, str], float]]:
        for values, histogram in read():
            its_labels, observed = dict(zip(labels, values, strict=True)), 0
            for bound, observed in histogram.buckets():
                yield f"{name}_bucket", {**its_labels, "le": _number(bound)}, observed
            yield f"{name}_count", its_labels, observed
            yield f"{name}_sum", its_labels, histogram.total

    registry.add(_Metric(name, "histogram", meaning, samples))


def new_registry() -> Registry:
    """Creates a registry with the process metrics of the operating system."""
    registry = Registry()
    counters_of(registry, "process_cpu_seconds", "CPU time, user and system.", (), lambda: [((), _processor_time_s())])
    gauge(registry, "process_resident_memory_bytes", "Resident memory, including shared pages.", _resident_bytes)
    gauge(registry, "process_open_fds", "Open file descriptors.", _open_files)
    gauge(registry, "process_tasks", "Tasks of the event loop.", _tasks)
    return registry


def _processor_time_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _open_files() -> float:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _tasks() -> float:
    """Counts the tasks of the running event loop; 0 without one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


def show_exchanges(registry: Registry, message_items: Mapping[str, Histogram]) -> None:
    """Registers each exchange's items per message."""
    histograms_of(
        registry,
        "legato_exchange_message_items",
        "Items per message of an exchange.",
        ["exchange"],
        lambda: [([name], histogram) for name, histogram in message_items.items()],
    )
