"""Signs users in by the issuer of OpenID Connect. The console only passes on what the browser comes back with."""

from typing import Final
from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response

from console.pages.user.sign_in import become, next_path, shows_refusals
from console.web.visit import Visit, own_path
from legato_protos.auth.v1.credentials_pb2 import FinishOidcSignInRequest, StartOidcLinkRequest, StartOidcSignInRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# As long as a state is good for.
COOKIE_LIFE_S: Final = 600


@shows_refusals
async def start(visit: Visit) -> Response:
    """Answers a link: a form could not be sent on to another site, as the pages' policy forbids that."""
    again = visit.query.get("again") == "1"
    request = StartOidcSignInRequest(origin=visit.origin, client=visit.client, again=again)
    started = await visit.auth.sign_in.StartOidcSignIn(request)
    _remember(visit, started.browser_token, next_path(visit))
    return RedirectResponse(started.authorization_url, 303)


@shows_refusals
async def accept_invitation(visit: Visit) -> Response:
    request = StartOidcSignInRequest(
        origin=visit.origin, client=visit.client, invitation_code=visit.form.get("code"), again=False
    )
    started = await visit.auth.sign_in.StartOidcSignIn(request)
    _remember(visit, started.browser_token, "/")
    return visit.render("continue.html", has_secret=True, url=started.authorization_url, back="/sign-in")


async def link(visit: Visit) -> Response:
    """Begins to link an identity to the user; the page that follows has a link."""
    request = StartOidcLinkRequest(origin=visit.origin)
    started = await visit.auth.users.StartOidcLink(request)
    _remember(visit, started.browser_token, "/security")
    return visit.render("continue.html", has_secret=True, url=started.authorization_url, back="/security")


@shows_refusals
async def finish(visit: Visit) -> Response:
    """Signs in, or links, the user who comes back from the issuer in the browser that began."""
    query = visit.query
    browser_token, _dot, path = visit.request.cookies.get(_cookie(visit), "").partition(".")
    visit.cookies[_cookie(visit)] = None
    path = own_path(unquote(path))
    request = FinishOidcSignInRequest(
        state=query.get("state", ""),
        code=query.get("code", ""),
        issuer=query.get("iss", ""),
        browser_token=browser_token,
        session_token=visit.session_token,
        client=visit.client,
    )
    if not request.code or not browser_token:
        raise LegatoError(Reason.SIGN_IN_FAILED, Sentence("sso_failed"))
    finished = await visit.auth.sign_in.FinishOidcSignIn(request)
    if not finished.HasField("signed_in"):
        return visit.redirect(path, "identity-linked")
    await become(visit, finished.signed_in)
    if not finished.account_id:
        return visit.redirect(path)
    visit.choose_account(finished.account_id)
    return visit.redirect(path, "joined")


def _cookie(visit: Visit) -> str:
    return f"{visit.session_cookie}-sso"


def _remember(visit: Visit, browser_token: str, path: str) -> None:
    visit.cookies[_cookie(visit)] = (f"{browser_token}.{quote(path, safe='')}", COOKIE_LIFE_S)
