"""The security page: passkeys, recovery codes, sessions, and what the user has done."""

import asyncio

from starlette.responses import Response

from console.pages.user.sign_in import challenge
from console.web import shown_once
from console.web.visit import Visit
from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1.credentials_pb2 import GetCredentialsRequest
from services.chassis.errors import LegatoError, Reason

EVENTS_SHOWN = 20
EVENTS_ON_A_PAGE = 100
LONGEST_NAME = 100


async def show(visit: Visit) -> Response:
    return await page(visit)


async def show_new_passkey(visit: Visit) -> Response:
    if visit.who.needs_step_up(visit.now):
        raise LegatoError(Reason.STEP_UP_REQUIRED, "Confirm that it is you.")
    return visit.render("passkey_new.html", problem=None)


async def start_passkey(visit: Visit) -> Response:
    request = pb.StartPasskeyRegistrationRequest(origin=visit.origin)
    answer = await visit.auth.users.StartPasskeyRegistration(request)
    return challenge(answer.challenge_id, answer.options_json)


async def add_passkey(visit: Visit) -> Response:
    request = pb.FinishPasskeyRegistrationRequest(
        challenge_id=visit.form.get("challenge"),
        credential_json=visit.form.get("credential"),
        name=visit.form.get("name")[:LONGEST_NAME],
    )
    try:
        await visit.auth.users.FinishPasskeyRegistration(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return visit.render("passkey_new.html", 400, problem=error)
    return visit.redirect("/security", "passkey-added")


async def rename_passkey(visit: Visit) -> Response:
    request = pb.RenamePasskeyRequest(passkey_id=visit.form.get("passkey_id"), name=visit.form.get("name"))
    try:
        await visit.auth.users.RenamePasskey(request)
    except LegatoError as error:
        return await refused(visit, error)
    return visit.redirect("/security", "passkey-renamed")


async def remove_passkey(visit: Visit) -> Response:
    request = pb.RemovePasskeyRequest(passkey_id=visit.form.get("passkey_id"))
    try:
        await visit.auth.users.RemovePasskey(request)
    except LegatoError as error:
        return await refused(visit, error)
    return visit.redirect("/security", "passkey-removed")


async def make_recovery_codes(visit: Visit) -> Response:
    request = pb.GenerateRecoveryCodesRequest()
    made = await visit.auth.users.GenerateRecoveryCodes(request)
    return await shown_once.show(visit, "/security/recovery-codes", made, _recovery_codes)


async def show_recovery_codes(visit: Visit) -> Response:
    made = await shown_once.take(visit, pb.GenerateRecoveryCodesResponse())
    return visit.redirect("/security", "codes-shown-before") if made is None else await _recovery_codes(visit, made)


async def _recovery_codes(visit: Visit, made: pb.GenerateRecoveryCodesResponse) -> Response:
    return visit.render("recovery_codes.html", has_secret=True, codes=list(made.codes))


async def end_sessions(visit: Visit) -> Response:
    session_id = visit.form.get("session_id")
    request = pb.EndSessionsRequest(session_ids=[session_id] if session_id else [])
    ended = await visit.auth.users.EndSessions(request)
    return visit.redirect("/security", "sessions-ended", ended.ended)


async def rename_user(visit: Visit) -> Response:
    request = pb.UpdateUserRequest(name=visit.form.get("name"))
    try:
        await visit.auth.users.UpdateUser(request)
    except LegatoError as error:
        return await refused(visit, error)
    return visit.redirect("/security", "name-changed")


async def show_events(visit: Visit) -> Response:
    """Shows everything that the user has done, a page at a time."""
    request = pb.ListMyAuditEventsRequest(
        page_size=EVENTS_ON_A_PAGE, page_token=visit.request.query_params.get("page", "")
    )
    events = await visit.auth.users.ListMyAuditEvents(request)
    return visit.render(
        "audit_log.html", events=events.events, next_page=events.next_page_token, is_account=False, back="/security"
    )


async def refused(visit: Visit, error: LegatoError) -> Response:
    if error.reason not in (Reason.REQUEST_INVALID, Reason.NOT_FOUND):
        raise error
    return await page(visit, error.message, 400)


async def page(visit: Visit, problem: str = "", status: int = 200) -> Response:
    credentials, sessions, events = await asyncio.gather(
        visit.auth.credentials.GetCredentials(GetCredentialsRequest()),
        visit.auth.users.ListSessions(pb.ListSessionsRequest()),
        visit.auth.users.ListMyAuditEvents(pb.ListMyAuditEventsRequest(page_size=EVENTS_SHOWN)),
    )
    return visit.render(
        "security.html",
        status,
        problem=problem,
        passkeys=credentials.passkeys,
        credentials=credentials,
        sessions=sessions.sessions,
        current_session_id=sessions.current_session_id,
        events=events.events,
        has_more_events=bool(events.next_page_token),
    )
