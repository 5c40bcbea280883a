"""The pages of the password and the authenticator app, and the removal of linked identities."""

from starlette.responses import Response

from console.display.qr_codes import qr_code
from console.pages.user.security import refused
from console.web.visit import Visit
from protos.auth.v1 import credentials_pb2 as pb
from services.chassis.errors import LegatoError, Reason


async def show_password(visit: Visit) -> Response:
    _require_step_up(visit)
    return visit.render("password.html", problem=None, email="")


async def set_password(visit: Visit) -> Response:
    email = visit.form.get("email")
    try:
        if visit.form.get("password") != visit.form.get("repeated_password"):
            raise LegatoError(Reason.REQUEST_INVALID, "The two passwords are not the same.", param="password")
        request = pb.SetPasswordRequest(password=visit.form.get("password"), email=email)
        await visit.auth.credentials.SetPassword(request)
    except LegatoError as error:
        if error.reason not in (Reason.REQUEST_INVALID, Reason.TOO_MANY_SIGN_INS):
            raise
        return visit.render("password.html", 400, problem=error, email=email)
    if visit.who.user.has_password:
        return visit.redirect("/security", "password-changed")
    return visit.redirect("/security/authenticator", "password-set")


async def remove_password(visit: Visit) -> Response:
    request = pb.RemovePasswordRequest()
    try:
        await visit.auth.credentials.RemovePassword(request)
    except LegatoError as error:
        return await refused(visit, error)
    return visit.redirect("/security", "password-removed")


async def show_totp(visit: Visit) -> Response:
    return await _totp_page(visit)


async def set_totp(visit: Visit) -> Response:
    request = pb.SetTotpRequest(challenge_id=visit.form.get("challenge"), code=visit.form.get("code"))
    try:
        await visit.auth.credentials.SetTotp(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return await _totp_page(visit, error)
    return visit.redirect("/security", "totp-set")


async def remove_identity(visit: Visit) -> Response:
    request = pb.RemoveOidcIdentityRequest(identity_id=visit.form.get("identity_id"))
    try:
        await visit.auth.credentials.RemoveOidcIdentity(request)
    except LegatoError as error:
        return await refused(visit, error)
    return visit.redirect("/security", "identity-removed")


async def _totp_page(visit: Visit, problem: LegatoError | None = None) -> Response:
    """Shows the secret of this session until a code confirms it, so that nobody scans twice; no secret is in a form."""
    _require_step_up(visit)
    started = await visit.auth.credentials.StartTotp(pb.StartTotpRequest())
    secret = " ".join(started.secret[start : start + 4] for start in range(0, len(started.secret), 4))
    return visit.render(
        "authenticator.html",
        400 if problem else 200,
        has_secret=True,
        problem=problem,
        is_same=started.challenge_id == visit.form.get("challenge"),
        picture=qr_code(started.uri),
        secret=secret,
        challenge=started.challenge_id,
    )


def _require_step_up(visit: Visit) -> None:
    if visit.who.needs_step_up(visit.now):
        raise LegatoError(Reason.STEP_UP_REQUIRED, "Confirm that it is you.")
