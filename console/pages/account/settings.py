"""The settings of an account: its name, what `auto` means, grounding, and its members with their roles."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.account.allowed_classes import classes_in, classes_of_account, may_use
from console.display.language import _
from console.display.words import ROLES
from console.web.forms import Refusal, Rules
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce, secret_page
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.router.v1.router_pb2 import ListModelsRequest
from legato_protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.model_classes import AUTO, CLASSES

# Of a member who is removed. All of them are revoked, also those that are not shown.
KEYS_SHOWN: Final = 200


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    account, members, models = await asyncio.gather(
        visit.read_account(),
        visit.auth.accounts.ListMembers(pb.ListMembersRequest(account_id=visit.account_id)),
        visit.optional(visit.router.router.ListModels(ListModelsRequest()), "classes"),
    )
    classes = None if models is None else [each.model_id for each in models.models if each.model_id != AUTO]
    return visit.render(
        "settings.html",
        refusal=refusal,
        account=account,
        members=members.members,
        invitations=members.invitations,
        classes=None if classes is None else [name for name in classes if may_use(account, name)],
        all_classes=list(CLASSES),
        allowed=classes_of_account(account),
    )


shows_refusals = shows_again(show, reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.MODEL_UNKNOWN))


@shows_refusals
async def set_class(visit: Visit) -> Response:
    return await _update(visit, auth_pb2.UpdateAccountRequest(preferred_class=visit.form.get("class")))


@shows_refusals
async def set_allowed_classes(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        allowed = classes_in(rules, CLASSES)
    request = auth_pb2.UpdateAccountRequest(allowed_classes=allowed, allow_all_classes=allowed is None)
    return await _update(visit, request)


@shows_refusals
async def set_grounding(visit: Visit) -> Response:
    chosen = visit.form.all("grounding")
    request = auth_pb2.UpdateAccountRequest(
        search="search" in chosen, memory="memory" in chosen, attachments="attachments" in chosen
    )
    return await _update(visit, request)


@shows_refusals
async def rename(visit: Visit) -> Response:
    return await _update(visit, auth_pb2.UpdateAccountRequest(name=visit.form.get("name")))


async def _update(visit: Visit, request: auth_pb2.UpdateAccountRequest) -> Response:
    request.account_id = visit.account_id
    await visit.auth.accounts.UpdateAccount(request)
    return visit.redirect("/settings", "account-changed")


@shows_refusals
async def invite(visit: Visit) -> Response:
    request = pb.InviteMemberRequest(
        account_id=visit.account_id, email=visit.form.get("email"), role=role_named(visit.form.get("role"))
    )
    made = await visit.auth.accounts.InviteMember(request)
    return await INVITED.lead_to("/settings/members/invited", visit, made)


INVITED: Final = ShownOnce(pb.InviteMemberResponse, secret_page("invited.html"), back="/settings")


@shows_refusals
async def cancel_invitation(visit: Visit) -> Response:
    request = pb.CancelInvitationRequest(account_id=visit.account_id, invitation_id=visit.form.get("invitation_id"))
    await visit.auth.accounts.CancelInvitation(request)
    return visit.redirect("/settings", "invitation-cancelled")


@shows_refusals
async def change_role(visit: Visit) -> Response:
    request = pb.ChangeMemberRoleRequest(
        account_id=visit.account_id, user_id=visit.form.get("user_id"), role=role_named(visit.form.get("role"))
    )
    await visit.auth.accounts.ChangeMemberRole(request)
    return visit.redirect("/settings", "role-changed")


async def show_removal(visit: Visit) -> Response:
    """Lists the keys that a member made, before they are removed."""
    user_id, account_id = visit.path_value("user_id"), visit.account_id
    listing = auth_pb2.ListKeysRequest(
        account_id=account_id, created_by=user_id, only_active=True, newest_first=True, page_size=KEYS_SHOWN
    )
    members, listed = await asyncio.gather(
        visit.auth.accounts.ListMembers(pb.ListMembersRequest(account_id=account_id)),
        visit.auth.key_admin.ListKeys(listing),
    )
    member = next((each for each in members.members if each.user.user_id == user_id), None)
    is_self = user_id == visit.who.user.user_id
    if member is None or not (is_self or visit.who.is_owner):
        raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="member"))
    return visit.render(
        "member_removal.html",
        member=member,
        is_self=is_self,
        keys=listed.keys,
        has_more=bool(listed.next_page_token),
    )


@shows_refusals
async def remove_member(visit: Visit) -> Response:
    request = pb.RemoveMemberRequest(
        account_id=visit.account_id, user_id=visit.form.get("user_id"), kept_key_ids=visit.form.all("kept_key_ids")
    )
    await visit.auth.accounts.RemoveMember(request)
    is_self = request.user_id == visit.who.user.user_id
    return visit.redirect("/" if is_self else "/settings", "member-removed")


def role_named(name: str) -> "AccountRole.ValueType":
    found = next((number for number, (role, *_words) in ROLES.items() if role == name), None)
    if found is None:
        raise Refusal({"role": _("Choose a role.")})
    return found
