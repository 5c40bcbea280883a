"""The models of each class, tier by tier, with their health: over all routers, and at each of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from console.display.language import _
from console.display.model_health import FAILING, FAILS_OFTEN, RECOVERING, ROLLED_BACK, UNKNOWN, while_closed
from console.display.words import number, percent
from console.pages.operator.figures import FULL_SHARE, NONE, Figure, Finding, counted
from console.pages.operator.trials import counts_of, is_rolled_back, roll_back_findings
from legato_protos.router.v1 import router_pb2 as pb
from services.rules.staged_files import StagedFile


@dataclass(frozen=True, slots=True)
class RouterRoutes:
    """The models of one router in the order in which they are asked; or why they are not known."""

    address: str
    targets: Sequence[pb.Target] = ()
    problem: str = ""
    # Of the routes.
    version: str = ""
    # What the calls to models came to.
    outcomes: tuple[pb.ModelOutcomes, ...] = ()
    # What a reload did; empty: there was none.
    outcome: str = ""
    # What a reload would do: lines that come and go, and the file, which may have mistakes.
    changes: tuple[str, ...] = ()
    file: StagedFile = field(default_factory=StagedFile)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in its place in the routes, at one router or at several."""

    # Of its figures.
    name: str
    # The same model at each router that has it there.
    at: tuple[tuple[RouterRoutes, pb.Target], ...]
    shares_its_tier: bool = False
    # Some of the routers do not have it.
    is_partial: bool = False

    @property
    def target(self) -> pb.Target:
        """The model at the first of them, for what is the same at all."""
        return self.at[0][1]

    @property
    def addresses(self) -> str:
        return ", ".join(router.address for router, _target in self.at)

    @property
    def is_rolled_back(self) -> bool:
        return is_rolled_back(target for _router, target in self.at)

    @property
    def has_recent_counts(self) -> bool:
        """Returns whether all routers count the last five minutes: those of an earlier release do not."""
        return all(target.HasField("recent_calls") for _router, target in self.at)

    @property
    def counts(self) -> tuple[int, int]:
        """The calls and the failures since the start of each router."""
        each = [counts_of(target, router.outcomes) for router, target in self.at]
        return sum(calls for calls, _failures in each), sum(failures for _calls, failures in each)

    @property
    def recent_counts(self) -> tuple[int, int]:
        """The calls and the failures of the last five minutes."""
        targets = [target for _router, target in self.at]
        return sum(each.recent_calls for each in targets), sum(each.recent_failures for each in targets)

    @property
    def health(self) -> tuple[str, str]:
        """The words and the kind of the worst state of its circuit breakers; while all are closed, by what failed."""
        if self.is_rolled_back:
            return ROLLED_BACK
        breakers = {target.breaker_state for _router, target in self.at}
        if pb.BREAKER_STATE_OPEN in breakers:
            return FAILING
        if pb.BREAKER_STATE_HALF_OPEN in breakers:
            return RECOVERING
        if breakers != {pb.BREAKER_STATE_CLOSED}:
            return UNKNOWN
        return while_closed(*(self.recent_counts if self.has_recent_counts else self.counts))

    @property
    def figures(self) -> Iterator[tuple[str, Figure]]:
        words, kind = self.health
        yield f"{self.name} state", Figure(_(words), kind)
        yield f"{self.name} differences", Figure(self._differences())
        yield f"{self.name} running", self._running()
        yield f"{self.name} latency", Figure(self._first_token())
        recent = _failed(*self.recent_counts) if self.has_recent_counts else NONE
        yield f"{self.name} recent", Figure(recent, "warn" if self.health == FAILS_OFTEN else "")
        yield f"{self.name} counted", Figure(_failed(*self.counts))

    def _differences(self) -> str:
        """Names the routers where the model is in trouble, if it is not everywhere."""
        states = [(router.address, ModelRow("", ((router, target),)).health) for router, target in self.at]
        if len({health for _address, health in states}) < 2:
            return ""
        troubled = [f"{address}: {_(words)}" for address, (words, kind) in states if kind in ("warn", "bad")]
        return ", ".join(troubled)

    def _running(self) -> Figure:
        targets = [target for _router, target in self.at]
        running = sum(target.running for target in targets)
        if not all(target.HasField("limit") for target in targets):
            return Figure(counted(running))
        limit = sum(target.limit for target in targets)
        shown = _("%(running)s of %(limit)s", running=counted(running), limit=counted(limit))
        return Figure(shown, "warn" if limit and running >= FULL_SHARE * limit else "")

    def _first_token(self) -> str:
        """Returns the median time to the first token, or those of the fastest and the slowest router."""
        medians = sorted(target.median_latency_s for _router, target in self.at if target.HasField("median_latency_s"))
        shown = dict.fromkeys(number(1000 * median_s) for median_s in medians)
        ends = list(shown)[:1] + list(shown)[1:][-1:]
        return f"{NONE.join(ends)} ms" if ends else NONE


@dataclass(frozen=True, slots=True)
class ModelTable:
    # By class; in each in the order in which they are asked.
    classes: list[tuple[str, list[ModelRow]]]

    @property
    def rows(self) -> list[ModelRow]:
        return [row for _class_id, rows in self.classes for row in rows]

    @property
    def has_recent_counts(self) -> bool:
        return all(row.has_recent_counts for row in self.rows)

    @property
    def rolled_back(self) -> list[str]:
        """The classes whose trial of a model was rolled back at a router."""
        return [class_id for class_id, rows in self.classes if any(row.is_rolled_back for row in rows)]

    @property
    def findings(self) -> Iterator[Finding]:
        found = dict.fromkeys((row.target.provider, row.target.model_name, row.health) for row in self.rows)
        for provider, model, health in found:
            if health == FAILING:
                text = _("%(model)s of %(provider)s fails, and is asked last.", model=model, provider=provider)
                yield Finding("bad", text, "provider-down.md")
            elif health == FAILS_OFTEN:
                text = _("%(model)s of %(provider)s fails often.", model=model, provider=provider)
                yield Finding("warn", text, "provider-down.md")
        yield from roll_back_findings(self.rolled_back)


def table_of(routers: Sequence[RouterRoutes], name: str = "model") -> ModelTable:
    """Returns the models of routers that answered, each in its place once. `name` begins those of the figures."""
    found: dict[tuple[str, int, str, str, int], list[tuple[RouterRoutes, pb.Target]]] = {}
    for router in routers:
        # A tier may have a model twice, with different settings.
        seen: Counter[tuple[str, int, str, str]] = Counter()
        for target in router.targets:
            place = (target.class_id, target.tier, target.provider, target.model_name)
            seen[place] += 1
            found.setdefault((*place, seen[place]), []).append((router, target))
    order = list(dict.fromkeys(place[0] for place in found))
    places = sorted(found, key=lambda place: (order.index(place[0]), place[1]))
    members = Counter(place[:2] for place in places)
    rows = [
        ModelRow(
            f"{name} {' '.join(map(str, place))}",
            tuple(found[place]),
            shares_its_tier=place[1] > 0 and members[place[:2]] > 1,
            is_partial=len(found[place]) < len(routers),
        )
        for place in places
    ]
    return ModelTable([(class_id, list(each)) for class_id, each in groupby(rows, lambda row: row.target.class_id)])


def _failed(calls: int, failures: int) -> str:
    if not calls:
        return NONE
    return _(
        "%(failures)s of %(calls)s (%(share)s)",
        failures=counted(failures),
        calls=counted(calls),
        share=percent(failures / calls, 1),
    )
