"""Finds out whose a key is, by its public part, and revokes it."""

from starlette.responses import Response

from console.pages.account.keys import KEY_ID, milliseconds_since
from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from services.chassis.errors import LegatoError, Reason


async def show(visit: Visit) -> Response:
    return visit.render("operator_identify.html", problem="")


async def identify(visit: Visit) -> Response:
    key_id = visit.form.get("key_id")
    if not KEY_ID.fullmatch(key_id):
        return visit.render("operator_identify.html", 400, problem="This is not the public part of a key.")
    try:
        await _find(visit, key_id)
    except LegatoError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return visit.render(
            "operator_identify.html", 404, problem="The key is well formed, but it was never one of this service's."
        )
    return visit.redirect(f"/operator/keys/{key_id}")


async def show_one(visit: Visit) -> Response:
    return visit.render("operator_key.html", found=await _find(visit, _key_id(visit)))


async def revoke(visit: Visit) -> Response:
    began_s = visit.console.clock.elapsed_s()
    request = auth_pb2.RevokeKeyRequest(key_id=_key_id(visit))
    await visit.auth.key_admin.RevokeKey(request)
    return visit.redirect(f"/operator/keys/{_key_id(visit)}", "key-revoked", milliseconds_since(visit, began_s))


async def _find(visit: Visit, key_id: str) -> auth_pb2.GetKeyResponse:
    request = auth_pb2.GetKeyRequest(key_id=key_id)
    return await visit.auth.key_admin.GetKey(request)


def _key_id(visit: Visit) -> str:
    key_id: str = visit.request.path_params["key_id"]
    if not KEY_ID.fullmatch(key_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.")
    return key_id
