"""Signs users in and out: by a one-time link, a passkey, a password or a recovery code, or with an invitation."""

import contextlib

import msgspec
from starlette.responses import JSONResponse, Response

from console.web.step_up import typed_code
from console.web.visit import Visit, own_path, status_of
from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1.credentials_pb2 import SendSignInLinkRequest, SignInWithPasswordRequest
from services.chassis.errors import LegatoError, Reason

# Refusals that the sign-in page itself shows.
SHOWN_HERE = (Reason.SIGN_IN_FAILED, Reason.TOO_MANY_SIGN_INS, Reason.REQUEST_INVALID)


async def show(visit: Visit) -> Response:
    """Shows the ways to sign in. Whoever is signed in may have opened somebody else's link, whose code no server sees:
    the page asks which of the two to be, and a script goes on where there is no link."""
    return await page(visit)


async def with_link(visit: Visit) -> Response:
    code = typed_code(visit)
    if visit.known is not None and visit.form.get("instead_of") != visit.known.user.user_id:
        return await page(visit, code=code)
    request = pb.SignInWithLinkRequest(code=code, client=visit.client)
    try:
        answer = await visit.auth.sign_in.SignInWithLink(request)
    except LegatoError as error:
        return await refused(visit, error, "code")
    return await _signed_in(visit, answer.signed_in)


async def with_recovery_code(visit: Visit) -> Response:
    request = pb.SignInWithRecoveryCodeRequest(code=visit.form.get("code"), client=visit.client)
    try:
        answer = await visit.auth.sign_in.SignInWithRecoveryCode(request)
    except LegatoError as error:
        return await refused(visit, error, "recovery")
    return await _signed_in(visit, answer.signed_in)


async def start_passkey(visit: Visit) -> Response:
    """Returns a challenge for the browser, at sign-in and at a step-up."""
    request = pb.StartPasskeySignInRequest(origin=visit.origin, client=visit.client)
    answer = await visit.auth.sign_in.StartPasskeySignIn(request)
    return challenge(answer.challenge_id, answer.options_json)


async def with_passkey(visit: Visit) -> Response:
    request = pb.FinishPasskeySignInRequest(
        challenge_id=visit.form.get("challenge"), credential_json=visit.form.get("credential"), client=visit.client
    )
    try:
        answer = await visit.auth.sign_in.FinishPasskeySignIn(request)
    except LegatoError as error:
        return await refused(visit, error, "passkey")
    return await _signed_in(visit, answer.signed_in)


async def with_password(visit: Visit) -> Response:
    request = SignInWithPasswordRequest(
        email=visit.form.get("email"),
        password=visit.form.get("password"),
        totp_code=visit.form.get("code"),
        client=visit.client,
    )
    try:
        answer = await visit.auth.methods.SignInWithPassword(request)
    except LegatoError as error:
        return await refused(visit, error, "password")
    return await _signed_in(visit, answer.signed_in)


async def send_link(visit: Visit) -> Response:
    """Sends a link by mail; the page says the same whether anybody has the address."""
    request = SendSignInLinkRequest(email=visit.form.get("email"), client=visit.client)
    try:
        await visit.auth.methods.SendSignInLink(request)
    except LegatoError as error:
        return await refused(visit, error, "mail")
    return visit.redirect("/sign-in", "link-sent")


async def sign_out(visit: Visit) -> Response:
    request = pb.SignOutRequest(session_token=visit.session_token)
    await visit.auth.sign_in.SignOut(request)
    visit.sign_out()
    response = visit.redirect("/sign-in", "signed-out")
    response.headers["clear-site-data"] = '"storage"'
    return response


async def choose_account(visit: Visit) -> Response:
    account_id = visit.form.get("account_id")
    if any(membership.account_id == account_id for membership in visit.who.resolved.memberships):
        visit.choose_account(account_id)
    return visit.redirect("/")


async def show_invitation(visit: Visit) -> Response:
    return visit.render("invitation.html", invitation=None, code="", problem=None, name="")


async def view_invitation(visit: Visit) -> Response:
    """Shows who invites to what. The code stays in the form: nothing is consumed yet."""
    code = visit.form.get("code")
    request = pb.GetInvitationRequest(code=code, client=visit.client)
    try:
        invitation = await visit.auth.sign_in.GetInvitation(request)
    except LegatoError as error:
        if error.reason not in (*SHOWN_HERE, Reason.NOT_FOUND):
            raise
        return visit.render("invitation.html", status_of(error), invitation=None, code="", problem=error, name="")
    issuer = (await visit.sign_in_methods()).oidc_issuer
    return visit.render(
        "invitation.html", has_secret=True, invitation=invitation, code=code, problem=None, name="", issuer=issuer
    )


async def accept_invitation(visit: Visit) -> Response:
    code, name = visit.form.get("code"), visit.form.get("name")
    request = pb.AcceptInvitationRequest(code=code, name=name, client=visit.client)
    if visit.known is not None and not visit.form.get("as_new"):
        request.session_token = visit.known.session_token
    try:
        answer = await visit.auth.sign_in.AcceptInvitation(request)
    except LegatoError as error:
        if error.reason not in (*SHOWN_HERE, Reason.NOT_FOUND):
            raise
        return visit.render("invitation.html", status_of(error), invitation=None, code="", problem=error, name=name)
    visit.choose_account(answer.account_id)
    if not answer.HasField("signed_in"):
        return visit.redirect("/", "joined")
    await become(visit, answer.signed_in)
    return visit.redirect("/security/passkeys/new")


def challenge(challenge_id: str, options_json: str) -> Response:
    options = msgspec.json.decode(options_json)
    # Some libraries wrap the options as the browser's call has them.
    return JSONResponse({"challenge": challenge_id, "options": options.get("publicKey", options)})


async def _signed_in(visit: Visit, signed_in: pb.SignedIn) -> Response:
    await become(visit, signed_in)
    return visit.redirect(next_path(visit))


async def become(visit: Visit, signed_in: pb.SignedIn) -> None:
    """Lets this browser be another session, and ends the one that it was."""
    visit.sign_in(signed_in.session_token)
    if visit.known is not None:
        request = pb.SignOutRequest(session_token=visit.known.session_token)
        with contextlib.suppress(LegatoError):
            await visit.auth.sign_in.SignOut(request)


async def refused(visit: Visit, error: LegatoError, form: str) -> Response:
    if error.reason not in SHOWN_HERE:
        raise error
    response = await page(visit, error, form, status_of(error))
    if error.retry_after_s is not None:
        response.headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    return response


async def page(
    visit: Visit, problem: LegatoError | None = None, form: str = "", status: int = 200, code: str = ""
) -> Response:
    return visit.render(
        "sign_in.html",
        status,
        has_secret=bool(code),
        code=code,
        problem=problem,
        problem_form=form,
        next_path=next_path(visit),
        methods=await visit.sign_in_methods(),
    )


def next_path(visit: Visit) -> str:
    return own_path(visit.form.get("next") or visit.request.query_params.get("next", ""))
