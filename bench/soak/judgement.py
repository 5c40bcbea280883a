"""Judges a soak: detects growing memory and leaked resources."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Final

import msgspec

from bench.report import align
from bench.soak.clients import Outcome
from bench.soak.readings import FILES, THREADS
from services.chassis.database.engine import READERS

PROMISED_MIB_PER_H: Final = 5.0
# In a shorter run, temporary allocations look like growth.
SHORTEST_JUDGED_S: Final = 600.0
# A higher percentage is not explained by a slow machine.
TURNED_AWAY_MOST_PERCENT: Final = 1
# The window of the median filter: about a minute, so that temporary allocations do not count.
FILTER_SAMPLES: Final = 13
# Database readers are threads that start on first use, with a connection each, which has three files in SQLite.
LAZY: Final = {THREADS: READERS, FILES: 3 * READERS}


class Sample(msgspec.Struct, frozen=True):
    at_s: float
    # By process.
    private_mib: dict[str, float]


class Soak(msgspec.Struct, frozen=True):
    """Everything that was observed."""

    seconds: float
    warm_up_s: float
    outcome: Outcome
    samples: list[Sample]
    # By process.
    before: dict[str, dict[str, int]]
    after: dict[str, dict[str, int]]
    # Defects in the ledger or the processes; there should be none.
    faults: list[str]

    @property
    def is_judged(self) -> bool:
        return self.seconds - self.warm_up_s >= SHORTEST_JUDGED_S

    def growth_mib_per_h(self) -> dict[str, float]:
        steady = [sample for sample in self.samples if sample.at_s >= self.warm_up_s]
        at_s = [sample.at_s for sample in steady]
        return {
            name: slope(at_s, filtered([sample.private_mib[name] for sample in steady])) * 3600
            for name in (steady[0].private_mib if steady else ())
        }

    def leftovers(self) -> list[str]:
        return [
            f"{process}: {self.after[process][name]} {name}, and {before} before"
            for process, resources in self.before.items()
            for name, before in resources.items()
            if self.after[process][name] > before + LAZY.get(name, 0)
        ]

    def violations(self) -> list[str]:
        found = [*self.faults, *self.leftovers()]
        if self.outcome.wrong:
            found.append(f"{self.outcome.wrong} chats went wrong: {'; '.join(self.outcome.wrongs)}")
        if 100 * self.outcome.turned_away > TURNED_AWAY_MOST_PERCENT * self.outcome.chats:
            found.append(f"{self.outcome.turned_away} of {self.outcome.chats} chats were told to retry")
        if self.is_judged:
            found += [
                f"{process}: its memory grows by {growth:.1f} MiB an hour"
                for process, growth in self.growth_mib_per_h().items()
                if growth > PROMISED_MIB_PER_H
            ]
        return found


def is_back(before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]) -> bool:
    return all(
        after[process][name] <= count + LAZY.get(name, 0)
        for process, resources in before.items()
        for name, count in resources.items()
    )


def filtered(values: Sequence[float]) -> list[float]:
    """Applies a running median."""
    reach = FILTER_SAMPLES // 2
    return [median(values[max(0, index - reach) : index + reach + 1]) for index in range(len(values))]


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """Returns the slope of the least-squares line."""
    if len(at) < 2:
        return 0.0
    mean_at, mean_value = mean(at), mean(values)
    spread = sum((moment - mean_at) ** 2 for moment in at)
    return sum((moment - mean_at) * (value - mean_value) for moment, value in zip(at, values, strict=True)) / spread


def table(soak: Soak) -> str:
    return "\n\n".join("\n".join(align(list(block))) for block in (_memory_lines(soak), _possession_lines(soak)))


def _memory_lines(soak: Soak) -> Iterator[list[str]]:
    yield ["private MiB", "at first", "after warm-up", "at last", "most", "MiB/h after warm-up"]
    steady = [sample for sample in soak.samples if sample.at_s >= soak.warm_up_s]
    for process, growth in soak.growth_mib_per_h().items():
        all_mib = [sample.private_mib[process] for sample in soak.samples]
        then_mib = [sample.private_mib[process] for sample in steady]
        figures = (all_mib[0], then_mib[0], then_mib[-1], max(all_mib), growth)
        yield [process, *(f"{figure:.1f}" for figure in figures)]


def _possession_lines(soak: Soak) -> Iterator[list[str]]:
    names = list(dict.fromkeys(name for resources in soak.before.values() for name in resources))
    yield ["before, after", *names]
    for process, before in soak.before.items():
        yield [process, *(f"{before[name]}, {soak.after[process][name]}" if name in before else "-" for name in names)]
