"""Finds out whose a key is, by its public part, and revokes it."""

from starlette.responses import Response

from console.account.key_ids import key_id_of, require_known
from console.display.language import _
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    return visit.render("identify.html", refusal=refusal, for_operators=True)


@shows_again(show, reasons=())
async def identify(visit: Visit) -> Response:
    not_found = _("The key is well formed, but it was never one of this service's.")
    return visit.redirect(f"/operator/keys/{await require_known(visit, _find, not_found)}")


async def show_one(visit: Visit) -> Response:
    return visit.render("operator_key.html", found=await _find(visit, key_id_of(visit)))


async def revoke(visit: Visit) -> Response:
    await visit.auth.key_admin.RevokeKey(auth_pb2.RevokeKeyRequest(key_id=key_id_of(visit)))
    return visit.redirect(f"/operator/keys/{key_id_of(visit)}", "key-revoked")


async def _find(visit: Visit, key_id: str) -> auth_pb2.GetKeyResponse:
    return await visit.auth.key_admin.GetKey(auth_pb2.GetKeyRequest(key_id=key_id))
