"""Notices that could not be delivered, of all accounts: where to, how many, and why. Never what they say."""

from starlette.responses import Response

from console.web.visit import Visit
from legato_protos.auth.v1 import notices_pb2 as pb


async def show(visit: Visit) -> Response:
    request = pb.ListDeadLettersRequest()
    found = await visit.auth.notices.ListDeadLetters(request)
    return visit.render("operator_dead_letters.html", found=found.dead_letters)
