"""The pages of the password and the authenticator app, and the removal of linked identities."""

from starlette.responses import Response

from console.display.qr_codes import qr_code
from console.pages.user.security import shows_refusals
from console.web.forms import Refusal, Rules
from console.web.refusals import shows_again
from console.web.visit import Visit
from protos.auth.v1 import credentials_pb2 as pb
from services.chassis.errors import Reason


async def show_password(visit: Visit, refusal: Refusal | None = None) -> Response:
    if refusal is None:
        visit.require_step_up()
    return visit.render("password.html", refusal=refusal, email=visit.form.get("email"))


@shows_again(show_password, reasons=(Reason.REQUEST_INVALID, Reason.TOO_MANY_SIGN_INS))
async def set_password(visit: Visit) -> Response:
    password = visit.form.get("password")
    with Rules(visit.form) as rules:
        is_repeated = password == visit.form.get("repeated_password")
        rules.require(is_repeated, "password", "The two passwords are not the same.")
    await visit.auth.credentials.SetPassword(pb.SetPasswordRequest(password=password, email=visit.form.get("email")))
    if visit.who.user.has_password:
        return visit.redirect("/security", "password-changed")
    return visit.redirect("/security/authenticator", "password-set")


@shows_refusals
async def remove_password(visit: Visit) -> Response:
    await visit.auth.credentials.RemovePassword(pb.RemovePasswordRequest())
    return visit.redirect("/security", "password-removed")


async def show_totp(visit: Visit, refusal: Refusal | None = None) -> Response:
    """Shows the secret of this session until a code confirms it: it is scanned once, and no secret is in a form."""
    visit.require_step_up()
    started = await visit.auth.credentials.StartTotp(pb.StartTotpRequest())
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
    request = pb.SetTotpRequest(challenge_id=visit.form.get("challenge"), code=visit.form.get("code"))
    await visit.auth.credentials.SetTotp(request)
    return visit.redirect("/security", "totp-set")


@shows_refusals
async def remove_identity(visit: Visit) -> Response:
    request = pb.RemoveOidcIdentityRequest(identity_id=visit.form.get("identity_id"))
    await visit.auth.credentials.RemoveOidcIdentity(request)
    return visit.redirect("/security", "identity-removed")
