"""The operators' first page: the models of each class with their health, and the processes around them. A script reads
the figures again while the page is visible."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from starlette.responses import JSONResponse, Response

from console.display.error_words import error_words
from console.display.language import _
from console.display.sentences import in_words
from console.display.words import clock
from console.pages.operator.figures import Figure, Finding
from console.pages.operator.model_table import ModelTable, RouterRoutes, table_of
from console.pages.operator.status import Status, build
from console.pages.operator.trials import evaluated
from console.process_status import read_processes
from console.services import RouterCalls
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.changes import Change
from services.chassis.errors import LegatoError
from services.rules.staged_files import StagedFile, find_obstacles


@dataclass(frozen=True, slots=True)
class Shown:
    """The processes and the models as the page shows them."""

    status: Status
    routers: list[RouterRoutes]
    # Over all routers that answer.
    models: ModelTable
    # Of each of them, if there are several.
    by_router: list[tuple[str, ModelTable]]

    @property
    def figures(self) -> dict[str, Figure]:
        """All figures, by the names under which the page shows them."""
        tables = [self.models, *(table for _address, table in self.by_router)]
        return self.status.figures | dict(figure for table in tables for row in table.rows for figure in row.figures)

    @property
    def findings(self) -> list[Finding]:
        return [*self.models.findings, *self.status.findings]

    @property
    def shape(self) -> str:
        """The structure of the page. If it changes, the page is loaded again."""
        parts = [
            *(f"{state.name} {state.address}" for state in self.status.processes),
            *(f"{router.address} {router.version} {router.problem}" for router in self.routers),
            *(f"{row.name} {row.addresses} {row.has_recent_counts}" for row in self.models.rows),
            *self.status.reasons,
            *(finding.text for finding in self.findings),
        ]
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


async def show(visit: Visit) -> Response:
    return await _page(visit, await _ask_each(visit, _compare))


async def figures(visit: Visit) -> Response:
    shown = await _shown(visit, await _ask_each(visit, _list))
    return JSONResponse({"shape": shown.shape, "figures": shown.figures, "time": _read_at(visit)})


async def _list(address: str, router: RouterCalls) -> RouterRoutes:
    """Asks a router for its models."""
    return await _listed(address, router, pb.ListTargetsRequest())


async def _compare(address: str, router: RouterCalls) -> RouterRoutes:
    """Asks a router for its models, and what a reload would change."""
    return await _listed(address, router, pb.ListTargetsRequest(compares_file=True))


async def _listed(address: str, router: RouterCalls, request: pb.ListTargetsRequest) -> RouterRoutes:
    answer = await router.route_admin.ListTargets(request)
    return RouterRoutes(
        address,
        answer.targets,
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
        return await _page(visit, found, 400, obstacles)
    version = found[0].file.version if found else ""

    async def ask(address: str, router: RouterCalls) -> RouterRoutes:
        answer = await router.route_admin.ReloadRoutes(pb.ReloadRoutesRequest(version=version))
        outcome = _("Reloaded. New chats use these routes.")
        outcomes = await _outcomes_of(router)
        return RouterRoutes(address, answer.targets, version=answer.version, outcomes=outcomes, outcome=outcome)

    reloaded = await _ask_each(visit, ask)
    status = 200 if all(not router.problem for router in reloaded) else 400
    return await _page(visit, reloaded, status, was_reloaded=True)


async def _page(
    visit: Visit,
    routers: list[RouterRoutes],
    status: int = 200,
    obstacles: Iterable[str] = (),
    *,
    was_reloaded: bool = False,
) -> Response:
    return visit.render(
        "operator_models.html",
        status,
        shown=await _shown(visit, routers),
        read_at=_read_at(visit),
        was_reloaded=was_reloaded,
        obstacles=obstacles,
        versions={router.version for router in routers if not router.problem},
        evaluations=list(evaluated([outcomes for router in routers for outcomes in router.outcomes])),
        error_words=error_words,
    )


async def _shown(visit: Visit, routers: list[RouterRoutes]) -> Shown:
    answering = [router for router in routers if not router.problem]
    each = [(router.address, table_of([router], f"{router.address} model")) for router in answering]
    status = build(await read_processes(visit.console.processes), visit.now)
    return Shown(status, routers, table_of(answering), each if len(each) > 1 else [])


def _read_at(visit: Visit) -> str:
    return f"{clock(visit.now, seconds=True)} UTC"


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
            problem = in_words(error.sentence)
            return RouterRoutes(name, problem=problem, file=StagedFile(mistakes=(problem,)))

    return await asyncio.gather(*(ask_one(*each) for each in visit.routers.items()))
