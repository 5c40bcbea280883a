"""The settings of an account: what `auto` means, its members, and its audit log."""

import asyncio

from starlette.responses import Response

from console.account.allowed_classes import classes_of_account, given_classes, may_use
from console.display.words import ROLES
from console.web import shown_once
from console.web.visit import Visit
from protos.auth.v1 import users_pb2 as pb
from protos.router.v1.router_pb2 import ListModelsRequest
from protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.rules.model_classes import AUTO, CLASSES

EVENTS_ON_A_PAGE = 100
# Of a member who is removed. All of them are revoked, also those that are not shown.
KEYS_SHOWN = 200


async def show(visit: Visit) -> Response:
    return await _page(visit)


async def set_class(visit: Visit) -> Response:
    request = pb.AccountServiceUpdateAccountRequest(
        account_id=visit.who.account_id, preferred_class=visit.form.get("class")
    )
    return await _update(visit, request)


async def set_allowed_classes(visit: Visit) -> Response:
    allowed, problem = given_classes(visit, list(CLASSES))
    if problem:
        return await _page(visit, problem, 400)
    request = pb.AccountServiceUpdateAccountRequest(
        account_id=visit.who.account_id, allowed_classes=allowed, allow_all_classes=allowed is None
    )
    return await _update(visit, request)


async def set_grounding(visit: Visit) -> Response:
    chosen = visit.form.all("grounding")
    request = pb.AccountServiceUpdateAccountRequest(
        account_id=visit.who.account_id,
        search="search" in chosen,
        memory="memory" in chosen,
        attachments="attachments" in chosen,
    )
    return await _update(visit, request)


async def rename(visit: Visit) -> Response:
    request = pb.AccountServiceUpdateAccountRequest(account_id=visit.who.account_id, name=visit.form.get("name"))
    return await _update(visit, request)


async def invite(visit: Visit) -> Response:
    request = pb.InviteMemberRequest(
        account_id=visit.who.account_id, email=visit.form.get("email"), role=role_named(visit.form.get("role"))
    )
    try:
        made = await visit.auth.accounts.InviteMember(request)
    except LegatoError as error:
        return await _refused(visit, error)
    return await shown_once.show(visit, "/settings/members/invited", made, _invited)


async def show_invited(visit: Visit) -> Response:
    made = await shown_once.take(visit, pb.InviteMemberResponse())
    return visit.redirect("/settings", "shown-before") if made is None else await _invited(visit, made)


async def _invited(visit: Visit, made: pb.InviteMemberResponse) -> Response:
    return visit.render("invited.html", has_secret=True, made=made)


async def cancel_invitation(visit: Visit) -> Response:
    request = pb.CancelInvitationRequest(account_id=visit.who.account_id, invitation_id=visit.form.get("invitation_id"))
    try:
        await visit.auth.accounts.CancelInvitation(request)
    except LegatoError as error:
        return await _refused(visit, error)
    return visit.redirect("/settings", "invitation-cancelled")


async def change_role(visit: Visit) -> Response:
    request = pb.ChangeMemberRoleRequest(
        account_id=visit.who.account_id, user_id=visit.form.get("user_id"), role=role_named(visit.form.get("role"))
    )
    try:
        await visit.auth.accounts.ChangeMemberRole(request)
    except LegatoError as error:
        return await _refused(visit, error)
    return visit.redirect("/settings", "role-changed")


async def show_removal(visit: Visit) -> Response:
    """Lists the keys that a member made, before they are removed."""
    user_id, account_id = visit.request.path_params["user_id"], visit.who.account_id
    listing = pb.AccountServiceListKeysRequest(
        account_id=account_id, created_by=user_id, only_active=True, newest_first=True, page_size=KEYS_SHOWN
    )
    members, listed = await asyncio.gather(_members(visit), visit.auth.accounts.ListKeys(listing))
    member = next((each for each in members.members if each.user.user_id == user_id), None)
    is_self = user_id == visit.who.user.user_id
    if member is None or not (is_self or visit.who.is_owner):
        raise LegatoError(Reason.NOT_FOUND, "There is no such member.")
    return visit.render(
        "member_removal.html",
        member=member,
        is_self=is_self,
        keys=[each.key for each in listed.keys],
        has_more=bool(listed.next_page_token),
    )


async def remove_member(visit: Visit) -> Response:
    request = pb.RemoveMemberRequest(
        account_id=visit.who.account_id,
        user_id=visit.form.get("user_id"),
        kept_key_ids=visit.form.all("kept_key_ids"),
    )
    try:
        await visit.auth.accounts.RemoveMember(request)
    except LegatoError as error:
        return await _refused(visit, error)
    is_self = request.user_id == visit.who.user.user_id
    return visit.redirect("/" if is_self else "/settings", "member-removed")


async def show_events(visit: Visit) -> Response:
    request = pb.AccountServiceListAuditEventsRequest(
        account_id=visit.who.account_id,
        page_size=EVENTS_ON_A_PAGE,
        page_token=visit.request.query_params.get("page", ""),
    )
    events = await visit.auth.accounts.ListAuditEvents(request)
    return visit.render(
        "audit_log.html", events=events.events, next_page=events.next_page_token, is_account=True, back="/settings"
    )


async def _update(visit: Visit, request: pb.AccountServiceUpdateAccountRequest) -> Response:
    began_s = visit.console.clock.elapsed_s()
    try:
        await visit.auth.accounts.UpdateAccount(request)
    except LegatoError as error:
        return await _refused(visit, error)
    took_ms = round(1000 * (visit.console.clock.elapsed_s() - began_s))
    return visit.redirect("/settings", "account-changed", took_ms)


async def _refused(visit: Visit, error: LegatoError) -> Response:
    if error.reason not in (Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.MODEL_UNKNOWN):
        raise error
    return await _page(visit, error.message, 400)


async def _page(visit: Visit, problem: str = "", status: int = 200) -> Response:
    account, members, classes = await asyncio.gather(
        visit.read_account(),
        _members(visit),
        _classes(visit),
    )
    return visit.render(
        "settings.html",
        status,
        problem=problem,
        account=account,
        members=members.members,
        invitations=members.invitations,
        classes=None if classes is None else [name for name in classes if may_use(account, name)],
        all_classes=list(CLASSES),
        allowed=classes_of_account(account),
    )


async def _members(visit: Visit) -> pb.ListMembersResponse:
    request = pb.ListMembersRequest(account_id=visit.who.account_id)
    return await visit.auth.accounts.ListMembers(request)


async def _classes(visit: Visit) -> list[str] | None:
    """Returns the classes on offer; None if the router does not answer."""
    try:
        models = await visit.router.router.ListModels(ListModelsRequest())
    except LegatoError as error:
        visit.console.log.debug("page.incomplete", name="classes", reason=error.reason)
        return None
    return [model.model_id for model in models.models if model.model_id != AUTO]


def role_named(name: str) -> "AccountRole.ValueType":
    found = next((number for number, (role, *_words) in ROLES.items() if role == name), None)
    if found is None:
        raise LegatoError(Reason.REQUEST_INVALID, "Choose a role.")
    return found
