"""The members of an account: invitations, roles, and removal."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.display.words import ROLES
from console.pages.account.settings import shows_refusals
from console.web.forms import Refusal
from console.web.shown_once import ShownOnce
from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.errors import LegatoError, Reason

# Of a member who is removed. All of them are revoked, also those that are not shown.
KEYS_SHOWN: Final = 200


@shows_refusals
async def invite(visit: Visit) -> Response:
    request = pb.InviteMemberRequest(
        account_id=visit.account_id, email=visit.form.get("email"), role=role_named(visit.form.get("role"))
    )
    made = await visit.auth.accounts.InviteMember(request)
    return await INVITED.lead_to("/settings/members/invited", visit, made)


async def _invited(visit: Visit, made: pb.InviteMemberResponse) -> Response:
    return visit.render("invited.html", has_secret=True, made=made)


INVITED: Final = ShownOnce(pb.InviteMemberResponse, _invited, back="/settings")


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
        raise LegatoError(Reason.NOT_FOUND, "There is no such member.")
    return visit.render(
        "member_removal.html",
        member=member,
        is_self=is_self,
        keys=listed.keys,
        has_more=bool(listed.next_page_token),
    )


@shows_refusals
async def remove(visit: Visit) -> Response:
    request = pb.RemoveMemberRequest(
        account_id=visit.account_id, user_id=visit.form.get("user_id"), kept_key_ids=visit.form.all("kept_key_ids")
    )
    await visit.auth.accounts.RemoveMember(request)
    is_self = request.user_id == visit.who.user.user_id
    return visit.redirect("/" if is_self else "/settings", "member-removed")


def role_named(name: str) -> "AccountRole.ValueType":
    found = next((number for number, (role, *_words) in ROLES.items() if role == name), None)
    if found is None:
        raise Refusal({"role": "Choose a role."})
    return found
