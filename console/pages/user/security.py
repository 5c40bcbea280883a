"""The security page: passkeys, password and authenticator app, recovery codes, sessions, and what the user has done."""

import asyncio

from starlette.responses import Response

from console.display.language import _
from console.display.qr_codes import qr_code
from console.pages.user.sign_in import challenge
from console.web.forms import LONGEST_NAME, Refusal, Rules
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce, secret_page
from console.web.visit import Visit
from legato_protos.auth.v1 import credentials_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import Reason

EVENTS_SHOWN = 20


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    own_events = pb.ListAuditEventsRequest(user_id=visit.who.user.user_id, page_size=EVENTS_SHOWN)
    credentials, sessions, events = await asyncio.gather(
        visit.auth.users.GetCredentials(credentials_pb2.GetCredentialsRequest()),
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


async def show_password(visit: Visit, refusal: Refusal | None = None) -> Response:
    if refusal is None:
        visit.require_step_up()
    return visit.render("password.html", refusal=refusal)


@shows_again(show_password, reasons=(Reason.REQUEST_INVALID, Reason.TOO_MANY_SIGN_INS))
async def set_password(visit: Visit) -> Response:
    password = visit.form.get("password")
    with Rules(visit.form) as rules:
        is_repeated = password == visit.form.get("repeated_password")
        rules.require(is_repeated, "password", _("The two passwords are not the same."))
    await visit.auth.users.SetPassword(
        credentials_pb2.SetPasswordRequest(password=password, email=visit.form.get("email"))
    )
    if visit.who.user.has_password:
        return visit.redirect("/security", "password-changed")
    return visit.redirect("/security/authenticator", "password-set")


@shows_refusals
async def remove_password(visit: Visit) -> Response:
    await visit.auth.users.RemovePassword(credentials_pb2.RemovePasswordRequest())
    return visit.redirect("/security", "password-removed")


async def show_totp(visit: Visit, refusal: Refusal | None = None) -> Response:
    """Shows the secret of this session until a code confirms it: it is scanned once, and no secret is in a form."""
    visit.require_step_up()
    started = await visit.auth.users.StartTotp(credentials_pb2.StartTotpRequest())
    secret = " ".join(started.secret[start : start + 4] for start in range(0, len(started.secret), 4))
    return visit.render(
        "authenticator.html",
        refusal=refusal,
        has_secret=True,
        is_same=started.challenge_id == visit.form.get("challenge"),
        picture=qr_code(started.uri),
        secret=secret,
        challenge=started.challenge_id,
    )


@shows_again(show_totp)
async def set_totp(visit: Visit) -> Response:
    request = credentials_pb2.SetTotpRequest(challenge_id=visit.form.get("challenge"), code=visit.form.get("code"))
    await visit.auth.users.SetTotp(request)
    return visit.redirect("/security", "totp-set")


@shows_refusals
async def remove_identity(visit: Visit) -> Response:
    request = credentials_pb2.RemoveOidcIdentityRequest(identity_id=visit.form.get("identity_id"))
    await visit.auth.users.RemoveOidcIdentity(request)
    return visit.redirect("/security", "identity-removed")


async def make_recovery_codes(visit: Visit) -> Response:
    made = await visit.auth.users.GenerateRecoveryCodes(pb.GenerateRecoveryCodesRequest())
    return await RECOVERY_CODES.lead_to("/security/recovery-codes", visit, made)


RECOVERY_CODES = ShownOnce(
    pb.GenerateRecoveryCodesResponse, secret_page("recovery_codes.html"), message="codes-shown-before"
)


async def end_sessions(visit: Visit) -> Response:
    session_id = visit.form.get("session_id")
    request = pb.EndSessionsRequest(session_ids=[session_id] if session_id else [])
    ended = await visit.auth.users.EndSessions(request)
    return visit.redirect("/security", "sessions-ended", ended.ended)


@shows_refusals
async def rename_user(visit: Visit) -> Response:
    await visit.auth.users.UpdateUser(pb.UpdateUserRequest(name=visit.form.get("name")))
    return visit.redirect("/security", "name-changed")
