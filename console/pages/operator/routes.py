"""Routes and the health of providers: what each router knows of the models it asks."""

from dataclasses import dataclass
from itertools import groupby
from typing import Final

from starlette.responses import Response

from console.display.words import TRANSLATIONS
from console.web.visit import Visit
from protos.auth.v1 import users_pb2
from protos.router.v1 import router_pb2 as pb
from services.chassis.errors import LegatoError

_ = TRANSLATIONS.gettext

RELOAD_TIMEOUT_S: Final = 10.0
BREAKERS: Final[dict[int, tuple[str, str]]] = {
    pb.BREAKER_STATE_CLOSED: (_("Healthy"), "good"),
    pb.BREAKER_STATE_HALF_OPEN: (_("Recovering"), "warn"),
    pb.BREAKER_STATE_OPEN: (_("Failing"), "bad"),
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
    answers = await visit.services.router.ask_each(
        lambda stubs: stubs.route_admin.ListTargets, pb.ListTargetsRequest(compares_file=True), visit.token
    )
    return _page(visit, [_routes_of(address, answer) for address, answer in answers.items()])


async def reload(visit: Visit) -> Response:
    """Has every router read its file again. One whose file has a mistake says which, and goes on as before."""
    visit.require_step_up()
    noted = users_pb2.RecordOperatorActionRequest(action=users_pb2.OPERATOR_ACTION_RELOAD_ROUTES)
    await visit.services.auth.change(lambda stubs: stubs.user_admin.RecordOperatorAction, noted, visit.token)
    answers = await visit.services.router.ask_each(
        lambda stubs: stubs.route_admin.ReloadRoutes, pb.ReloadRoutesRequest(), visit.token, RELOAD_TIMEOUT_S
    )
    reloaded = [
        _routes_of(address, answer, _("Reloaded. New chats use these routes.")) for address, answer in answers.items()
    ]
    return _page(visit, reloaded, 200 if all(not router.problem for router in reloaded) else 400)


def _page(visit: Visit, routers: list[RouterRoutes], status: int = 200) -> Response:
    return visit.render("operator_routes.html", status, routers=routers, breakers=BREAKERS)


def _routes_of(
    address: str, answer: pb.ListTargetsResponse | pb.ReloadRoutesResponse | LegatoError, outcome: str = ""
) -> RouterRoutes:
    name = address.rpartition("/")[2].removesuffix("-console.sock")
    if isinstance(answer, LegatoError):
        return RouterRoutes(name, [], answer.message)
    classes = [(name, list(targets)) for name, targets in groupby(answer.targets, lambda target: target.class_id)]
    if isinstance(answer, pb.ReloadRoutesResponse):
        return RouterRoutes(name, classes, outcome=outcome)
    return RouterRoutes(name, classes, changes=tuple(answer.changes), mistakes=tuple(answer.file_mistakes))
