"""My data: what is stored, a user's own data as a file, and the deletion of the user."""

import asyncio

from starlette.responses import Response

from console.account.audit_events import LogChoice, log_file
from console.account.exported_rows import own_keys
from console.display.words import time_of
from console.web.csv_files import csv_lines
from console.web.forms import Refusal
from console.web.periods import ALL_DAYS
from console.web.refusals import shows_again
from console.web.visit import Visit
from console.web.zip_files import Files, as_fields, json_file, zip_response
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.accounts_pb2 import DeleteUserRequest, ListMyKeysRequest, MyKey
from legato_protos.auth.v1.credentials_pb2 import GetCredentialsRequest


async def show(visit: Visit) -> Response:
    return visit.render("my_data.html")


async def show_export(visit: Visit) -> Response:
    visit.require_step_up()
    return visit.render("my_data_export.html")


async def export(visit: Visit) -> Response:
    """Sends what the service knows of the user: no key, code or password, of which it has none."""
    visit.require_step_up()
    # Read before anything is sent, as for an account.
    credentials, sessions = await asyncio.gather(
        visit.auth.users.GetCredentials(GetCredentialsRequest()),
        visit.auth.users.ListSessions(pb.ListSessionsRequest()),
    )
    user: dict[str, object] = {
        "user": as_fields(visit.who.user),
        "memberships": [as_fields(each) for each in visit.who.resolved.memberships],
        "ways_to_sign_in": as_fields(credentials),
        "sessions": [as_fields(each) for each in sessions.sessions],
    }
    return zip_response(visit, "legato-my-data.zip", _files(visit, user))


async def _files(visit: Visit, user: dict[str, object]) -> Files:
    yield "user.json", json_file(user)
    yield "keys.csv", csv_lines(visit, *own_keys(visit))
    yield "audit-log.csv", csv_lines(visit, *await log_file(visit, LogChoice(ALL_DAYS, user_id=visit.who.user.user_id)))


async def show_deletion(visit: Visit, refusal: Refusal | None = None) -> Response:
    """Says what a deletion ends, before it does."""
    visit.require_step_up()
    listed = await visit.auth.accounts.ListMyKeys(ListMyKeysRequest())
    own = {membership.account_id for membership in visit.who.resolved.memberships}
    working = [key for key in listed.keys if key.account_id in own and _works(visit, key)]
    return visit.render("my_data_delete.html", refusal=refusal, keys=working, has_more=bool(listed.next_page_token))


def _works(visit: Visit, key: MyKey) -> bool:
    is_expired = key.HasField("expire_time") and time_of(key.expire_time) <= visit.now
    return not (is_expired or key.HasField("revoke_time"))


@shows_again(show_deletion)
async def delete(visit: Visit) -> Response:
    """Deletes the visitor, and shows once what was deleted: they are signed out."""
    user_id = visit.who.user.user_id
    deleted = await visit.auth.accounts.DeleteUser(DeleteUserRequest(user_id=user_id))
    visit.sign_out()
    visit.cookies[visit.account_cookie] = None
    visit.known = None
    return visit.render("my_data_deleted.html", deleted=deleted, user_id=user_id)
