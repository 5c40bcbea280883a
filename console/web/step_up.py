"""Asks for proof again before something grants access, then does what was asked for."""

import json

from starlette.responses import Response

from console.web.visit import Form, Visit, status_of
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason


def ask(visit: Visit, problem: LegatoError | None = None) -> Response:
    """Shows the page that asks; it keeps the form that was sent, so that nothing is typed twice."""
    if visit.request.method == "POST":
        # A password is typed again rather than written into a page.
        fields = [field for field in visit.form.fields if "password" not in field[0]]
        pending = {"method": "POST", "path": visit.request.url.path, "fields": fields}
    else:
        pending = {"method": "GET", "path": visit.address, "fields": []}
    return _page(visit, json.dumps(pending), problem)


async def confirm(visit: Visit) -> tuple[str, str, Form] | Response:
    """Returns the method, path and form of the request to go on with, or a page that asks again."""
    pending = visit.form.get("pending")
    request = pb.StepUpRequest(session_token=visit.who.session_token, client=visit.client)
    if visit.form.get("credential"):
        request.passkey.challenge_id = visit.form.get("challenge")
        request.passkey.credential_json = visit.form.get("credential")
    elif visit.form.get("kind") == "password":
        request.password.password = visit.form.get("password")
        request.password.totp_code = visit.form.get("code")
    elif visit.form.get("kind") == "recovery":
        request.recovery_code = visit.form.get("code")
    else:
        request.sign_in_link_code = visit.form.get("code")
    try:
        answer = await visit.services.auth.change(lambda stubs: stubs.sign_in.StepUp, request)
    except LegatoError as error:
        if error.reason not in (Reason.SIGN_IN_FAILED, Reason.TOO_MANY_SIGN_INS, Reason.REQUEST_INVALID):
            raise
        return _page(visit, pending, error)
    visit.sign_in(answer.signed_in.session_token)
    await visit.resolve(answer.signed_in.session_token)
    return _parse(pending)


def _parse(pending: str) -> tuple[str, str, Form]:
    try:
        given = json.loads(pending)
        fields = [(str(name), str(value)) for name, value in given["fields"]]
        return str(given["method"]), str(given["path"]), Form(fields)
    except (ValueError, KeyError, TypeError):
        raise LegatoError(Reason.REQUEST_INVALID, "The form cannot be read.") from None


def _page(visit: Visit, pending: str, problem: LegatoError | None) -> Response:
    return visit.render(
        "confirm.html", 403 if problem is None else status_of(problem), pending=pending, problem=problem
    )
