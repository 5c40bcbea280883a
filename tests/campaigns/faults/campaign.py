"""A campaign: so many kills at each point, in several harnesses at once."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from tests.campaigns.faults.client import Provider
from tests.campaigns.faults.harnesses.forked_harness import ForkedHarness
from tests.campaigns.faults.harnesses.harness import FaultHarness
from tests.campaigns.faults.harnesses.whole_harness import WholeHarness
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.faults.points import Point
from tests.campaigns.faults.round import Stage
from tests.campaigns.faults.tally import Progress, Tally, story

# Kills at one point before the books are audited and the harness turns to the next.
UNIT: Final = 10
# A point that is missed this many times for each kill is not reached at all.
MOST_MISSES: Final = 4
# Holds are given up after seconds, for those who wait for it.
SHORT_LIVES: Final = {"LEGATO_STREAM_LIFE_S": "2", "LEGATO_HOLD_GRACE_S": "0.5", "LEGATO_SWEEP_INTERVAL_S": "0.05"}


SQLITE_MONTHS: Final = "SQLite, months"
POSTGRES_MONTHS: Final = "PostgreSQL, months"
REPLICAS_MONTHS: Final = "two meterings, months"


@dataclass(frozen=True)
class Kind:
    """One kind of harness, and how many of it work at once."""

    name: str
    build: Callable[[Provider], FaultHarness]
    harnesses: int = 1


@dataclass
class Campaign:
    title: str
    kinds: Sequence[Kind]
    # Which kinds of harness a point is played in.
    kinds_for: Callable[[Point], Sequence[str]]
    points: Sequence[Point]
    kills: int
    dice: random.Random
    # Play rounds with this seed only.
    replay: int | None = None
    # Of each kind, however many it would have; and of all kinds at once.
    most_harnesses: int = 100
    most_at_once: int = 100
    tallies: dict[str, Tally] = field(default_factory=dict)
    # Of every violation.
    stories: list[str] = field(default_factory=list)

    async def run(self) -> list[Tally]:
        self.tallies = {point.name: Tally(point.name, self.kills) for point in self.points}
        self._progress = Progress(self.title, self.kills * len(self.points))
        queues = self._share_out()
        self._places = asyncio.Semaphore(self.most_at_once)
        try:
            async with asyncio.TaskGroup() as workers:
                for kind in self.kinds:
                    for _ in range(min(kind.harnesses, len(queues[kind.name]), self.most_harnesses)):
                        workers.create_task(self._work(kind, queues[kind.name]))
        finally:
            self._progress.end()
        return list(self.tallies.values())

    def _share_out(self) -> Mapping[str, deque[tuple[Point, int]]]:
        """Each point's kills, divided among its kinds of harness, in units."""
        queues: dict[str, deque[tuple[Point, int]]] = {kind.name: deque() for kind in self.kinds}
        for at, point in enumerate(self.points):
            names = self.kinds_for(point)
            # Few kills are divided too.
            unit = min(UNIT, ceil(self.kills / len(names)))
            for turn, start in enumerate(range(0, self.kills, unit)):
                queues[names[(at + turn) % len(names)]].append((point, min(unit, self.kills - start)))
        for queue in queues.values():
            # So that what is slow and what is wrong shows early at every point.
            self.dice.shuffle(queue)
        return queues

    async def _work(self, kind: Kind, queue: "deque[tuple[Point, int]]") -> None:
        while queue:
            async with self._places, Provider() as provider:
                harness = kind.build(provider)
                try:
                    await harness.start()
                    await self._work_in(harness, kind, queue)
                finally:
                    await harness.stop()

    async def _work_in(self, harness: FaultHarness, kind: Kind, queue: "deque[tuple[Point, int]]") -> None:
        """Until there is nothing left to do, or the harness is not fit for more."""
        while queue:
            point, kills = queue.popleft()
            stage = await Stage.prepare(harness)
            left = await self._play(stage, kind, point, kills)
            await self._inspect(harness, kind, point)
            if left is not None:
                self._tell(harness.last_words())
                if left:
                    queue.appendleft((point, left))
                return

    async def _play(self, stage: Stage, kind: Kind, point: Point, kills: int) -> int | None:
        """Returns how many kills another harness must do if this one is stuck."""
        tally = self.tallies[point.name]
        misses = 0
        while kills and misses <= MOST_MISSES * UNIT:
            outcome = await stage.play(point, self.dice.getrandbits(32) if self.replay is None else self.replay)
            tally.add(outcome)
            for violation in outcome.violations:
                self._tell(story(outcome, violation, kind.name))
            if outcome.reached:
                kills -= 1
                self._progress.advance(point.name)
            else:
                misses += 1
            if outcome.is_stuck:
                # Where every round is stuck, the campaign comes to an end all the same.
                return kills if outcome.reached else kills - 1
        return None

    async def _inspect(self, harness: FaultHarness, kind: Kind, point: Point) -> None:
        """All books of the harness, and its logs."""
        tally = self.tallies[point.name]
        for violation in await harness.ledger.audit():
            tally.audit += 1
            self._tell(f"AUDIT at {point.name} ({kind.name}): {violation}")
        for line in harness.new_errors():
            tally.errors += 1
            self._tell(f"ERROR at {point.name} ({kind.name}): {line}")

    def _tell(self, story: str) -> None:
        self.stories.append(story)
        self._progress.say(story)


def forked(
    forks: Forks, points: Sequence[Point], kills: int, dice: random.Random, postgres_url: Callable[[], str]
) -> Campaign:
    """`postgres_url` gives a new, empty database."""

    def sqlite(provider: Provider) -> FaultHarness:
        return ForkedHarness(forks, provider)

    def postgres(provider: Provider) -> FaultHarness:
        return ForkedHarness(forks, provider, database_url=postgres_url())

    def replicas(provider: Provider, settings: Mapping[str, str] | None = None) -> FaultHarness:
        return ForkedHarness(forks, provider, meterings=2, database_url=postgres_url(), settings=settings)

    def with_months(provider: Provider, meterings: int) -> FaultHarness:
        return ForkedHarness(forks, provider, meterings=meterings, database_url=postgres_url(), has_months=True)

    kinds = [
        Kind("SQLite", sqlite, harnesses=2),
        Kind("PostgreSQL", postgres, harnesses=2),
        Kind("two edges", lambda provider: ForkedHarness(forks, provider, edges=2)),
        Kind("two meterings", replicas, harnesses=2),
        Kind("SQLite, slow", sqlite),
        Kind("PostgreSQL, slow", postgres),
        Kind("SQLite, short lives", lambda provider: ForkedHarness(forks, provider, settings=SHORT_LIVES), harnesses=2),
        Kind("two meterings, short lives", lambda provider: replicas(provider, SHORT_LIVES)),
        Kind(SQLITE_MONTHS, lambda provider: ForkedHarness(forks, provider, has_months=True)),
        Kind(POSTGRES_MONTHS, lambda provider: with_months(provider, meterings=1)),
        Kind(REPLICAS_MONTHS, lambda provider: with_months(provider, meterings=2)),
    ]
    return Campaign("forked", kinds, _kinds_of_forked, points, kills, dice)


def whole(points: Sequence[Point], kills: int, dice: random.Random) -> Campaign:
    kinds = [
        Kind("one edge", WholeHarness),
        Kind("two edges", lambda provider: WholeHarness(provider, edges=2)),
        Kind("short lives", lambda provider: WholeHarness(provider, settings=SHORT_LIVES)),
    ]
    # Months end, and cards are charged, in forked services only.
    played = [point for point in points if not point.paid]
    return Campaign("whole", kinds, _kinds_of_whole, played, kills, dice)


def _kinds_of_forked(point: Point) -> Sequence[str]:
    if point.paid:
        # A process that dies at a place had the lease. At any moment, another one may have it, and go on.
        return [SQLITE_MONTHS, POSTGRES_MONTHS, *([REPLICAS_MONTHS] if point.how == "place" else [])]
    if point.waits_for_sweep:
        return ["SQLite, short lives", "SQLite, short lives", "two meterings, short lives"]
    if point.is_slow:
        return ["SQLite, slow"] if point.process == "edge" else ["SQLite, slow", "PostgreSQL, slow"]
    if point.process in ("metering", "everything"):
        return ["SQLite", "PostgreSQL", "two meterings"]
    return ["SQLite", "two edges"] if point.process == "edge" else ["SQLite"]


def _kinds_of_whole(point: Point) -> Sequence[str]:
    return ["short lives"] if point.waits_for_sweep else ["one edge", "two edges"]
