"""Signs users in and out: by a one-time link, a passkey, a password or a recovery code."""

import contextlib

import msgspec
from starlette.responses import JSONResponse, Response

from console.display import language
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.step_up import SHOWN_HERE, passkey_proof, password_proof, typed_code
from console.web.visit import A_YEAR_S, Visit, own_path
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.credentials_pb2 import SendSignInLinkRequest
from services.chassis.errors import LegatoError


async def show(visit: Visit, refusal: Refusal | None = None, *, code: str = "") -> Response:
    """Shows the ways to sign in. A signed-in visitor may have opened the link of another user, whose code no server
    sees: the page asks which of the two to be, and a script goes on where there is no link."""
    return visit.render(
        "sign_in.html",
        refusal=refusal,
        has_secret=bool(code),
        code=code,
        next_path=next_path(visit),
        methods=await visit.sign_in_methods(),
    )


shows_refusals = shows_again(show, reasons=SHOWN_HERE, keeps_status=True)


@shows_refusals
async def with_link(visit: Visit) -> Response:
    code = typed_code(visit)
    if visit.known is not None and visit.form.get("instead_of") != visit.known.user.user_id:
        return await show(visit, code=code)
    return await _prove(visit, pb.Proof(sign_in_link_code=code))


@shows_refusals
async def with_recovery_code(visit: Visit) -> Response:
    return await _prove(visit, pb.Proof(recovery_code=visit.form.get("code")))


async def start_passkey(visit: Visit) -> Response:
    """Returns a challenge for the browser, at sign-in and at a step-up."""
    request = pb.StartPasskeySignInRequest(origin=visit.origin, client=visit.client)
    answer = await visit.auth.sign_in.StartPasskeySignIn(request)
    return challenge(answer.challenge_id, answer.options_json)


@shows_refusals
async def with_passkey(visit: Visit) -> Response:
    return await _prove(visit, passkey_proof(visit))


@shows_refusals
async def with_password(visit: Visit) -> Response:
    return await _prove(visit, password_proof(visit))


async def _prove(visit: Visit, proof: pb.Proof) -> Response:
    answer = await visit.auth.sign_in.SignIn(pb.SignInRequest(proof=proof, client=visit.client))
    await become(visit, answer.signed_in)
    return visit.redirect(next_path(visit))


@shows_refusals
async def send_link(visit: Visit) -> Response:
    """Sends a link by mail; the page says the same whether a user has the address or not."""
    await visit.auth.sign_in.SendSignInLink(SendSignInLinkRequest(email=visit.form.get("email"), client=visit.client))
    return visit.redirect("/sign-in", "link-sent")


async def sign_out(visit: Visit) -> Response:
    await visit.auth.sign_in.SignOut(pb.SignOutRequest(session_token=visit.session_token))
    visit.sign_out()
    response = visit.redirect("/sign-in", "signed-out")
    response.headers["clear-site-data"] = '"storage"'
    return response


async def choose_account(visit: Visit) -> Response:
    account_id = visit.form.get("account_id")
    if any(membership.account_id == account_id for membership in visit.who.resolved.memberships):
        visit.choose_account(account_id)
    return visit.redirect("/")


async def choose_language(visit: Visit) -> Response:
    if visit.form.get("language") in language.LANGUAGES:
        visit.cookies[language.COOKIE] = (visit.form.get("language"), A_YEAR_S)
    return visit.redirect(next_path(visit))


def challenge(challenge_id: str, options_json: str) -> Response:
    options = msgspec.json.decode(options_json)
    # Some libraries wrap the options as the browser's call has them.
    return JSONResponse({"challenge": challenge_id, "options": options.get("publicKey", options)})


async def become(visit: Visit, signed_in: pb.SignedIn) -> None:
    """Lets this browser be another session, and ends the one that it was."""
    visit.sign_in(signed_in.session_token)
    if visit.known is not None:
        request = pb.SignOutRequest(session_token=visit.known.session_token)
        with contextlib.suppress(LegatoError):
            await visit.auth.sign_in.SignOut(request)


def next_path(visit: Visit) -> str:
    return own_path(visit.form.get("next") or visit.query.get("next", ""))
