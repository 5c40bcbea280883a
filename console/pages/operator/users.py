"""Users, for operators: list, create, sign-in links, disable, and who is an operator."""

from typing import Final

from starlette.responses import Response

from console.pages.account.settings import role_named
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

USERS_ON_A_PAGE: Final = 50
LONGEST_QUERY: Final = 100


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    query = visit.query
    wanted, account_id = query.get("q", "").strip()[:LONGEST_QUERY], query.get("account", "").strip()
    request = pb.ListUsersRequest(
        page_size=USERS_ON_A_PAGE, page_token=visit.page_token, query=wanted, account_id=account_id
    )
    listed = await visit.auth.user_admin.ListUsers(request)
    accounts: dict[str, list[pb.Membership]] = {}
    for held in listed.memberships:
        accounts.setdefault(held.user_id, []).append(held.membership)
    return visit.render(
        "operator_users.html",
        refusal=refusal,
        users=listed.users,
        accounts=accounts,
        wanted=wanted,
        account_id=account_id,
        next_page=listed.next_page_token,
    )


@shows_again(show, "account_id", reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND))
async def create(visit: Visit) -> Response:
    form = visit.form
    request = pb.CreateUserRequest(name=form.get("name"), email=form.get("email"), account_id=form.get("account_id"))
    if request.account_id:
        request.role = role_named(form.get("role"))
    return await _show_link(visit, await visit.auth.user_admin.CreateUser(request))


async def show_one(visit: Visit, refusal: Refusal | None = None) -> Response:
    user, memberships = await _find(visit)
    return visit.render("operator_user.html", refusal=refusal, user=user, memberships=memberships)


@shows_again(show_one)
async def create_link(visit: Visit) -> Response:
    made = await visit.auth.user_admin.CreateSignInLink(pb.CreateSignInLinkRequest(user_id=visit.path_value("user_id")))
    user, _memberships = await _find(visit)
    return await _show_link(visit, pb.CreateUserResponse(user=user, code=made.code, code_expire_time=made.expire_time))


async def _show_link(visit: Visit, made: pb.CreateUserResponse) -> Response:
    return await LINK.lead_to(f"/operator/users/{made.user.user_id}/sign-in-link", visit, made)


async def _link(visit: Visit, made: pb.CreateUserResponse) -> Response:
    """Shows a link, which signs operators in here, and all other users at the console for owners."""
    origin = visit.origin if made.user.is_operator else visit.console.public_origin or visit.origin
    return visit.render("operator_link.html", has_secret=True, made=made, user=made.user, link_origin=origin)


LINK: Final = ShownOnce(pb.CreateUserResponse, _link)


@shows_again(show_one)
async def disable(visit: Visit) -> Response:
    await visit.auth.user_admin.DisableUser(pb.DisableUserRequest(user_id=visit.path_value("user_id")))
    return visit.redirect(_path(visit), "user-disabled")


@shows_again(show_one)
async def enable(visit: Visit) -> Response:
    await visit.auth.user_admin.DisableUser(pb.DisableUserRequest(user_id=visit.path_value("user_id"), enable=True))
    return visit.redirect(_path(visit), "user-enabled")


@shows_again(show_one)
async def set_operator(visit: Visit) -> Response:
    is_operator = visit.form.get("is_operator") == "yes"
    request = pb.SetOperatorRequest(user_id=visit.path_value("user_id"), is_operator=is_operator)
    await visit.auth.user_admin.SetOperator(request)
    if not is_operator and request.user_id == visit.who.user.user_id:
        return visit.redirect("/", "operator-removed")
    return visit.redirect(_path(visit), "operator-made" if is_operator else "operator-removed")


async def _find(visit: Visit) -> tuple[pb.User, list[pb.Membership]]:
    request = pb.ListUsersRequest(user_id=visit.path_value("user_id"), page_size=1)
    found = await visit.auth.user_admin.ListUsers(request)
    if not found.users:
        raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="user"))
    return found.users[0], [held.membership for held in found.memberships]


def _path(visit: Visit) -> str:
    return f"/operator/users/{visit.path_value('user_id')}"
