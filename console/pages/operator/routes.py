"""Routes and the health of providers: what each router knows of the models it asks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from starlette.responses import Response

from console.services import RouterCalls
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.errors import LegatoError

BREAKERS: Final[dict[int, tuple[str, str]]] = {
    pb.BREAKER_STATE_CLOSED: ("Healthy", "good"),
    pb.BREAKER_STATE_HALF_OPEN: ("Recovering", "warn"),
    pb.BREAKER_STATE_OPEN: ("Failing", "bad"),
}


@dataclass(frozen=True, slots=True)
class RouterRoutes:
    """The models of one router by class, in the order in which they are asked; or why they are not known."""

    address: str
    classes: list[tuple[str, list[pb.Target]]]
    problem: str = ""
    # What a reload did; empty: there was none.
    outcome: str = ""
    # What a reload would do: lines that come and go, and mistakes for which it would be refused.
    changes: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


async def show(visit: Visit) -> Response:
    request = pb.ListTargetsRequest(compares_file=True)

    async def ask(address: str, router: RouterCalls) -> RouterRoutes:
        answer = await router.route_admin.ListTargets(request)
        changes, mistakes = tuple(answer.changes), tuple(answer.file_mistakes)
        return RouterRoutes(address, _by_class(answer.targets), changes=changes, mistakes=mistakes)

    return _page(visit, await _ask_each(visit, ask))


async def reload(visit: Visit) -> Response:
    """Has every router read its file again. One whose file has a mistake says which, and goes on as before."""
    visit.require_step_up()
    await visit.record_operator_action(users_pb2.OPERATOR_ACTION_RELOAD_ROUTES)

    async def ask(address: str, router: RouterCalls) -> RouterRoutes:
        answer = await router.route_admin.ReloadRoutes(pb.ReloadRoutesRequest())
        return RouterRoutes(address, _by_class(answer.targets), outcome="Reloaded. New chats use these routes.")

    reloaded = await _ask_each(visit, ask)
    return _page(visit, reloaded, 200 if all(not router.problem for router in reloaded) else 400)


def _page(visit: Visit, routers: list[RouterRoutes], status: int = 200) -> Response:
    return visit.render("operator_routes.html", status, routers=routers, breakers=BREAKERS)


async def _ask_each(visit: Visit, ask: Callable[[str, RouterCalls], Awaitable[RouterRoutes]]) -> list[RouterRoutes]:
    """Asks all routers at once; one that refuses or does not answer is listed with the reason."""

    async def ask_one(address: str, router: RouterCalls) -> RouterRoutes:
        name = address.rpartition("/")[2].removesuffix("-console.sock")
        try:
            return await ask(name, router)
        except LegatoError as error:
            return RouterRoutes(name, [], error.message)

    return await asyncio.gather(*(ask_one(*each) for each in visit.routers.items()))


def _by_class(targets: Iterable[pb.Target]) -> list[tuple[str, list[pb.Target]]]:
    return [(name, list(found)) for name, found in groupby(targets, lambda target: target.class_id)]
