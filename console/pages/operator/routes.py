"""Routes and the health of providers: what each router knows of the models it asks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from starlette.responses import Response

from console.display.language import N_, _
from console.display.model_health import FAILING, RECOVERING, UNKNOWN, while_closed
from console.display.sentences import in_words
from console.services import RouterCalls
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.changes import Change
from services.chassis.errors import LegatoError
from services.rules.model_classes import CLASSES
from services.rules.model_comparison import OutcomeSum, compare, sum_outcomes
from services.rules.staged_files import StagedFile, find_obstacles

BREAKERS: Final[dict[int, tuple[str, str]]] = {
    pb.BREAKER_STATE_HALF_OPEN: RECOVERING,
    pb.BREAKER_STATE_OPEN: FAILING,
}
ROLES: Final[dict[int, str]] = {
    pb.CALL_ROLE_BASELINE: N_("serves"),
    pb.CALL_ROLE_CANARY: N_("canary"),
}


@dataclass(frozen=True, slots=True)
class RouterRoutes:
    """The models of one router by class, in the order in which they are asked; or why they are not known."""

    address: str
    classes: list[tuple[str, list[pb.Target]]]
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

    def counts_of(self, target: pb.Target) -> tuple[int, int]:
        """Returns the calls and the failures of a model in its place: a canary's are not those of the time before."""
        if not target.HasField("canary"):
            return target.attempts, target.failures
        own = [
            each
            for each in self.outcomes
            if each.role == pb.CALL_ROLE_CANARY
            and (each.class_id, each.provider, each.model_name) == (target.class_id, target.provider, target.model_name)
        ]
        return sum(each.calls for each in own), sum(each.failures for each in own)

    def health_of(self, target: pb.Target) -> tuple[str, str]:
        if target.breaker_state == pb.BREAKER_STATE_CLOSED:
            return while_closed(*self.counts_of(target))
        return BREAKERS.get(target.breaker_state, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcomes of a class with a canary: each model with its role, and verdicts on the new ones."""

    class_id: str
    models: list[tuple[str, OutcomeSum]]
    # Each with the role of the model that it is about.
    verdicts: list[tuple[str, str]]


async def show(visit: Visit) -> Response:
    return _page(visit, await _ask_each(visit, _compare))


async def _compare(address: str, router: RouterCalls) -> RouterRoutes:
    """Asks a router for its models, and what a reload would change."""
    answer = await router.route_admin.ListTargets(pb.ListTargetsRequest(compares_file=True))
    return RouterRoutes(
        address,
        _by_class(answer.targets),
        version=answer.version,
        outcomes=await _outcomes_of(router),
        changes=tuple(answer.changes),
        file=StagedFile(answer.file_version, tuple(answer.file_mistakes)),
    )


async def reload(visit: Visit) -> Response:
    """Has every router take over its file, if all have the same version of it. Otherwise none does, and the page tells
    why."""
    visit.require_step_up()
    found = await _ask_each(visit, _compare)
    # All have the same file, or none is reloaded.
    changes = [
        Change("routes_version", each.version, each.file.version)
        for each in found[:1]
        if each.file.version not in ("", each.version)
    ]
    await visit.record_operator_action(users_pb2.OPERATOR_ACTION_RELOAD_ROUTES, "", "", *changes)
    obstacles = find_obstacles({router.address: router.file for router in found})
    if obstacles:
        return _page(visit, found, 400, obstacles)
    version = found[0].file.version if found else ""

    async def ask(address: str, router: RouterCalls) -> RouterRoutes:
        answer = await router.route_admin.ReloadRoutes(pb.ReloadRoutesRequest(version=version))
        outcome = _("Reloaded. New chats use these routes.")
        return RouterRoutes(address, _by_class(answer.targets), version=answer.version, outcome=outcome)

    reloaded = await _ask_each(visit, ask)
    return _page(visit, reloaded, 200 if all(not router.problem for router in reloaded) else 400)


def _page(visit: Visit, routers: list[RouterRoutes], status: int = 200, obstacles: Iterable[str] = ()) -> Response:
    return visit.render(
        "operator_routes.html",
        status,
        routers=routers,
        obstacles=obstacles,
        rolled_back=_rolled_back(routers),
        versions={router.version for router in routers if not router.problem},
        evaluations=list(_evaluations([outcomes for router in routers for outcomes in router.outcomes])),
    )


def _rolled_back(routers: list[RouterRoutes]) -> list[str]:
    """Returns the classes whose canary was rolled back at a router."""
    targets = [target for router in routers for _name, of_class in router.classes for target in of_class]
    found = {target.class_id for target in targets if target.canary.is_rolled_back}
    return [class_id for class_id in CLASSES if class_id in found]


def _evaluations(outcomes: list[pb.ModelOutcomes]) -> Iterator[Evaluation]:
    """Yields the evaluation of each class with a canary that was called, summed over routers."""
    for class_id in CLASSES:
        by_role = {
            role: [each for each in outcomes if (each.class_id, each.role) == (class_id, role)] for role in ROLES
        }
        if any(by_role[role] for role in ROLES if role != pb.CALL_ROLE_BASELINE):
            yield Evaluation(class_id, *_compared(by_role))


def _compared(
    by_role: dict[int, list[pb.ModelOutcomes]],
) -> tuple[list[tuple[str, OutcomeSum]], list[tuple[str, str]]]:
    """Returns the sums of each model in each role, and how the new models compare with all others together."""
    sums = [
        (ROLES[role], sum_outcomes(name, outcomes))
        for role, outcomes in by_role.items()
        for name in dict.fromkeys(f"{each.provider}/{each.model_name}" for each in outcomes)
    ]
    baseline = OutcomeSum("the rest")
    for each in by_role[pb.CALL_ROLE_BASELINE]:
        baseline.add(each)
    new = [(role, each) for role, each in sums if role != ROLES[pb.CALL_ROLE_BASELINE]]
    verdicts = [(role, in_words(compare(baseline, each))) for role, each in new]
    return sums, verdicts


async def _outcomes_of(router: RouterCalls) -> tuple[pb.ModelOutcomes, ...]:
    """Returns none for a router of an earlier release, which does not tell them."""
    try:
        return tuple((await router.route_admin.ListOutcomes(pb.ListOutcomesRequest())).outcomes)
    except LegatoError:
        return ()


async def _ask_each(visit: Visit, ask: Callable[[str, RouterCalls], Awaitable[RouterRoutes]]) -> list[RouterRoutes]:
    """Asks all routers at once; one that refuses or does not answer is listed with the reason."""

    async def ask_one(address: str, router: RouterCalls) -> RouterRoutes:
        # On one machine a router is named by its socket, elsewhere by its address.
        name = address.rpartition("/")[2].removesuffix("-console.sock")
        try:
            return await ask(name, router)
        except LegatoError as error:
            told = in_words(error.sentence)
            return RouterRoutes(name, [], told, file=StagedFile(mistakes=(told,)))

    return await asyncio.gather(*(ask_one(*each) for each in visit.routers.items()))


def _by_class(targets: Iterable[pb.Target]) -> list[tuple[str, list[pb.Target]]]:
    return [(name, list(found)) for name, found in groupby(targets, lambda target: target.class_id)]
