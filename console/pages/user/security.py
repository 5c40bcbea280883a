"""The security page: passkeys, recovery codes, sessions, and what the user has done."""

import asyncio

from starlette.responses import Response

from console.pages.user.sign_in import challenge
from console.web.forms import LONGEST_NAME, Refusal
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce
from console.web.visit import Visit
from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1.credentials_pb2 import GetCredentialsRequest
from services.chassis.errors import Reason

EVENTS_SHOWN = 20
EVENTS_ON_A_PAGE = 100


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    own_events = pb.ListAuditEventsRequest(user_id=visit.who.user.user_id, page_size=EVENTS_SHOWN)
    credentials, sessions, events = await asyncio.gather(
        visit.auth.credentials.GetCredentials(GetCredentialsRequest()),
        visit.auth.users.ListSessions(pb.ListSessionsRequest()),
        visit.auth.audit.ListAuditEvents(own_events),
    )
    return visit.render(
        "security.html",
        refusal=refusal,
        passkeys=credentials.passkeys,
        credentials=credentials,
        sessions=sessions.sessions,
        current_session_id=sessions.current_session_id,
        events=events.events,
        has_more_events=bool(events.next_page_token),
    )


shows_refusals = shows_again(show, reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND))


async def show_new_passkey(visit: Visit, refusal: Refusal | None = None) -> Response:
    if refusal is None:
        visit.require_step_up()
    return visit.render("passkey_new.html", refusal=refusal)


async def start_passkey(visit: Visit) -> Response:
    answer = await visit.auth.users.StartPasskeyRegistration(pb.StartPasskeyRegistrationRequest(origin=visit.origin))
    return challenge(answer.challenge_id, answer.options_json)


@shows_again(show_new_passkey)
async def add_passkey(visit: Visit) -> Response:
    request = pb.FinishPasskeyRegistrationRequest(
        challenge_id=visit.form.get("challenge"),
        credential_json=visit.form.get("credential"),
        name=visit.form.get("name")[:LONGEST_NAME],
    )
    await visit.auth.users.FinishPasskeyRegistration(request)
    return visit.redirect("/security", "passkey-added")


@shows_refusals
async def rename_passkey(visit: Visit) -> Response:
    request = pb.RenamePasskeyRequest(passkey_id=visit.form.get("passkey_id"), name=visit.form.get("name"))
    await visit.auth.users.RenamePasskey(request)
    return visit.redirect("/security", "passkey-renamed")


@shows_refusals
async def remove_passkey(visit: Visit) -> Response:
    await visit.auth.users.RemovePasskey(pb.RemovePasskeyRequest(passkey_id=visit.form.get("passkey_id")))
    return visit.redirect("/security", "passkey-removed")


async def make_recovery_codes(visit: Visit) -> Response:
    made = await visit.auth.users.GenerateRecoveryCodes(pb.GenerateRecoveryCodesRequest())
    return await RECOVERY_CODES.lead_to("/security/recovery-codes", visit, made)


async def _recovery_codes(visit: Visit, made: pb.GenerateRecoveryCodesResponse) -> Response:
    return visit.render("recovery_codes.html", has_secret=True, codes=list(made.codes))


RECOVERY_CODES = ShownOnce(pb.GenerateRecoveryCodesResponse, _recovery_codes, message="codes-shown-before")


async def end_sessions(visit: Visit) -> Response:
    session_id = visit.form.get("session_id")
    request = pb.EndSessionsRequest(session_ids=[session_id] if session_id else [])
    ended = await visit.auth.users.EndSessions(request)
    return visit.redirect("/security", "sessions-ended", ended.ended)


@shows_refusals
async def rename_user(visit: Visit) -> Response:
    await visit.auth.users.UpdateUser(pb.UpdateUserRequest(name=visit.form.get("name")))
    return visit.redirect("/security", "name-changed")


async def show_events(visit: Visit) -> Response:
    """Shows everything that the user has done, a page at a time."""
    request = pb.ListAuditEventsRequest(user_id=visit.who.user.user_id)
    return await _events_page(visit, request, back="/security")


async def show_account_events(visit: Visit) -> Response:
    """Shows everything that was done in the account, a page at a time."""
    request = pb.ListAuditEventsRequest(account_id=visit.account_id)
    return await _events_page(visit, request, back="/settings")


async def _events_page(visit: Visit, request: pb.ListAuditEventsRequest, back: str) -> Response:
    request.page_size, request.page_token = EVENTS_ON_A_PAGE, visit.page_token
    listed = await visit.auth.audit.ListAuditEvents(request)
    return visit.render("audit_log.html", listed=listed, is_account=back == "/settings", back=back)
