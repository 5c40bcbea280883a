"""Invitations to an account: who invites to what, and how a new or a signed-in user accepts."""

from starlette.responses import Response

from console.pages.user.sign_in import become
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.step_up import SHOWN_HERE
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import Reason


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    return visit.render("invitation.html", refusal=refusal, invitation=None, code="")


_shows_refusals = shows_again(show, reasons=(*SHOWN_HERE, Reason.NOT_FOUND), keeps_status=True)


@_shows_refusals
async def view(visit: Visit) -> Response:
    """Shows who invites to what. The code stays in the form: nothing is consumed yet."""
    code = visit.form.get("code")
    invitation = await visit.auth.sign_in.GetInvitation(pb.GetInvitationRequest(code=code, client=visit.client))
    issuer = (await visit.sign_in_methods()).oidc_issuer
    return visit.render("invitation.html", has_secret=True, invitation=invitation, code=code, issuer=issuer)


@_shows_refusals
async def accept(visit: Visit) -> Response:
    request = pb.AcceptInvitationRequest(code=visit.form.get("code"), name=visit.form.get("name"), client=visit.client)
    if visit.known is not None and not visit.form.get("as_new"):
        request.session_token = visit.known.session_token
    answer = await visit.auth.sign_in.AcceptInvitation(request)
    visit.choose_account(answer.account_id)
    if not answer.HasField("signed_in"):
        return visit.redirect("/", "joined")
    await become(visit, answer.signed_in)
    return visit.redirect("/security/passkeys/new")
