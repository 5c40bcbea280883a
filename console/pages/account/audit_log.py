"""The audit log of an account, for its owners: who changed what, with filters, and as a file."""

import asyncio

from starlette.responses import Response

from console.account.audit_events import choice_in, file_of, listed_events
from console.account.key_names import read_key_names
from console.display.event_words import OF_ACCOUNTS
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb

PATH = "/settings/audit-log"


async def show(visit: Visit) -> Response:
    choice = choice_in(visit)
    events, members, names = await asyncio.gather(
        listed_events(visit, choice, PATH, account_id=visit.account_id),
        visit.auth.accounts.ListMembers(pb.ListMembersRequest(account_id=visit.account_id)),
        read_key_names(visit, [choice.object_id]),
    )
    people = {member.user.user_id: member.user.name for member in members.members}
    if choice.user_id:
        # Who has left is chosen by an address.
        people.setdefault(choice.user_id, choice.user_id)
    return visit.render("audit_log.html", is_account=True, kinds=OF_ACCOUNTS, people=people, key_names=names, **events)


async def download(visit: Visit) -> Response:
    return await file_of(visit, choice_in(visit), account_id=visit.account_id)
