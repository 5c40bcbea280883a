"""Users, for operators: list, create, sign-in links, disable, and who is an operator."""

from typing import Final

from starlette.responses import Response

from console.pages.account.settings import role_named
from console.web import shown_once
from console.web.visit import Visit
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason

USERS_ON_A_PAGE: Final = 50
LONGEST_QUERY: Final = 100


async def show(visit: Visit) -> Response:
    return await _list(visit)


async def create(visit: Visit) -> Response:
    form = visit.form
    account_id = form.get("account_id")
    request = pb.CreateUserRequest(name=form.get("name"), email=form.get("email"), account_id=account_id)
    if account_id:
        request.role = role_named(form.get("role"))
    try:
        made = await visit.auth.user_admin.CreateUser(request)
    except LegatoError as error:
        if error.reason not in (Reason.REQUEST_INVALID, Reason.NOT_FOUND):
            raise
        field = error.param if error.param in ("name", "email") else "account_id"
        return await _list(visit, {field: error.message}, 400)
    return await _show_link(visit, made)


async def show_one(visit: Visit) -> Response:
    return await _one(visit)


async def create_link(visit: Visit) -> Response:
    request = pb.CreateSignInLinkRequest(user_id=_user_id(visit))
    try:
        made = await visit.auth.user_admin.CreateSignInLink(request)
    except LegatoError as error:
        return await _refused(visit, error)
    user, _memberships = await _find(visit)
    return await _show_link(visit, pb.CreateUserResponse(user=user, code=made.code, code_expire_time=made.expire_time))


async def show_link(visit: Visit) -> Response:
    made = await shown_once.take(visit, pb.CreateUserResponse())
    return visit.redirect(_path(visit), "shown-before") if made is None else await _link(visit, made)


async def _show_link(visit: Visit, made: pb.CreateUserResponse) -> Response:
    return await shown_once.show(visit, f"/operator/users/{made.user.user_id}/sign-in-link", made, _link)


async def _link(visit: Visit, made: pb.CreateUserResponse) -> Response:
    return visit.render(
        "operator_link.html", has_secret=True, made=made, user=made.user, link_origin=_link_origin(visit, made.user)
    )


async def disable(visit: Visit) -> Response:
    return await _set_disabled(visit, pb.DisableUserRequest(user_id=_user_id(visit)), "user-disabled")


async def enable(visit: Visit) -> Response:
    return await _set_disabled(visit, pb.DisableUserRequest(user_id=_user_id(visit), enable=True), "user-enabled")


async def set_operator(visit: Visit) -> Response:
    is_operator = visit.form.get("is_operator") == "yes"
    request = pb.SetOperatorRequest(user_id=_user_id(visit), is_operator=is_operator)
    try:
        await visit.auth.user_admin.SetOperator(request)
    except LegatoError as error:
        return await _refused(visit, error)
    if not is_operator and request.user_id == visit.who.user.user_id:
        return visit.redirect("/", "operator-removed")
    return visit.redirect(_path(visit), "operator-made" if is_operator else "operator-removed")


async def _set_disabled(visit: Visit, request: pb.DisableUserRequest, notice: str) -> Response:
    try:
        await visit.auth.user_admin.DisableUser(request)
    except LegatoError as error:
        return await _refused(visit, error)
    return visit.redirect(_path(visit), notice)


async def _refused(visit: Visit, error: LegatoError) -> Response:
    if error.reason is not Reason.REQUEST_INVALID:
        raise error
    return await _one(visit, error.message, 400)


async def _list(visit: Visit, problems: dict[str, str] | None = None, status: int = 200) -> Response:
    query = visit.request.query_params
    wanted, account_id = query.get("q", "").strip()[:LONGEST_QUERY], query.get("account", "").strip()
    request = pb.ListUsersRequest(
        page_size=USERS_ON_A_PAGE, page_token=query.get("page", ""), query=wanted, account_id=account_id
    )
    listed = await visit.auth.user_admin.ListUsers(request)
    accounts: dict[str, list[pb.Membership]] = {}
    for held in listed.memberships:
        accounts.setdefault(held.user_id, []).append(held.membership)
    names = ("name", "email", "account_id", "role")
    given = {name: visit.form.get(name) for name in names}
    return visit.render(
        "operator_users.html",
        status,
        users=listed.users,
        accounts=accounts,
        wanted=wanted,
        account_id=account_id,
        next_page=listed.next_page_token,
        given=given if visit.form.fields else {"name": "", "email": "", "account_id": account_id, "role": "owner"},
        problems=problems or {},
    )


async def _one(visit: Visit, problem: str = "", status: int = 200) -> Response:
    user, memberships = await _find(visit)
    return visit.render("operator_user.html", status, user=user, memberships=memberships, problem=problem)


async def _find(visit: Visit) -> tuple[pb.User, list[pb.Membership]]:
    request = pb.ListUsersRequest(user_id=_user_id(visit), page_size=1)
    found = await visit.auth.user_admin.ListUsers(request)
    if not found.users:
        raise LegatoError(Reason.NOT_FOUND, "There is no such user.")
    return found.users[0], [held.membership for held in found.memberships]


def _link_origin(visit: Visit, user: pb.User) -> str:
    """Returns where a link signs a user in: operators here, everybody else at the console for owners."""
    return visit.origin if user.is_operator else visit.console.public_origin or visit.origin


def _user_id(visit: Visit) -> str:
    user_id: str = visit.request.path_params["user_id"]
    return user_id


def _path(visit: Visit) -> str:
    return f"/operator/users/{_user_id(visit)}"
