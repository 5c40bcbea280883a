"""Asks for proof again before something grants access, then does what was asked for."""

import json

from starlette.responses import Response

from console.display.sentences import in_words
from console.web.forms import Form, Refusal, status_of, unreadable_form
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.credentials_pb2 import SendStepUpCodeRequest
from services.chassis.errors import LegatoError, Reason

# Refusals that pages on which users sign in show themselves.
SHOWN_HERE = (Reason.SIGN_IN_FAILED, Reason.TOO_MANY_SIGN_INS, Reason.REQUEST_INVALID)


async def ask(visit: Visit) -> Response:
    """Shows the page that asks; it keeps the form that was sent, so that nothing is typed twice."""
    is_post = visit.request.method == "POST"
    path = visit.request.url.path if is_post else visit.address
    # A password is typed again rather than written into a page.
    fields = [field for field in visit.form.fields if "password" not in field[0]]
    return await _page(visit, json.dumps({"method": "POST" if is_post else "GET", "path": path, "fields": fields}))


async def ask_again(visit: Visit, refusal: Refusal) -> Response:
    return await _page(visit, visit.form.get("pending"), refusal)


_shows_refusals = shows_again(ask_again, reasons=SHOWN_HERE, keeps_status=True)


@_shows_refusals
async def mail_code(visit: Visit) -> Response:
    """Sends a code to the user's address, and asks again."""
    await visit.auth.users.SendStepUpCode(SendStepUpCodeRequest(client=visit.client))
    return await _page(visit, visit.form.get("pending"), done="mailed")


@_shows_refusals
async def add_first_passkey(visit: Visit) -> Response:
    """Adds the passkey of a user who can prove nothing yet, and asks for it."""
    await visit.auth.users.FinishPasskeyRegistration(
        pb.FinishPasskeyRegistrationRequest(
            challenge_id=visit.form.get("challenge"), credential_json=visit.form.get("credential")
        )
    )
    await visit.resolve(visit.who.session_token)
    return await _page(visit, visit.form.get("pending"), done="passkey-added")


def passkey_proof(visit: Visit) -> pb.Proof:
    challenge, credential = visit.form.get("challenge"), visit.form.get("credential")
    return pb.Proof(passkey=pb.PasskeyProof(challenge_id=challenge, credential_json=credential))


def password_proof(visit: Visit) -> pb.Proof:
    email, password, code = (visit.form.get(name) for name in ("email", "password", "code"))
    return pb.Proof(password=pb.PasswordProof(email=email, password=password, totp_code=code))


async def confirm(visit: Visit) -> tuple[str, str, Form] | Response:
    """Returns the method, path and form of the request to go on with, or a page that asks again."""
    if visit.form.get("credential"):
        proof = passkey_proof(visit)
    elif visit.form.get("kind") == "password":
        proof = password_proof(visit)
    elif visit.form.get("kind") == "recovery":
        proof = pb.Proof(recovery_code=visit.form.get("code"))
    else:
        proof = pb.Proof(sign_in_link_code=typed_code(visit))
    request = pb.StepUpRequest(session_token=visit.who.session_token, proof=proof, client=visit.client)
    try:
        answer = await visit.auth.sign_in.StepUp(request)
    except LegatoError as error:
        if error.reason not in SHOWN_HERE:
            raise
        return await ask_again(visit, Refusal({"": in_words(error.sentence)}, error, status_of(error)))
    visit.sign_in(answer.signed_in.session_token)
    await visit.resolve(answer.signed_in.session_token)
    return _parse(visit.form.get("pending"))


def typed_code(visit: Visit) -> str:
    """Returns the code of a link; some paste the whole link."""
    return visit.form.get("code").rpartition("#")[2]


def _parse(pending: str) -> tuple[str, str, Form]:
    try:
        given = json.loads(pending)
        fields = [(str(name), str(value)) for name, value in given["fields"]]
        return str(given["method"]), str(given["path"]), Form(fields)
    except (ValueError, KeyError, TypeError):
        raise unreadable_form() from None


async def _page(visit: Visit, pending: str, refusal: Refusal | None = None, done: str = "") -> Response:
    user = visit.who.user
    mails = bool(user.email) and (await visit.sign_in_methods()).mail
    has_way = user.passkeys or user.identities or user.has_password or user.recovery_codes
    return visit.render(
        "confirm.html",
        403,
        refusal,
        pending=pending,
        done=done,
        mails=mails,
        # As auth decides it.
        may_add_passkey=not has_way and not mails,
    )
