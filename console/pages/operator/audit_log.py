"""The audit log of the whole service: filters, a file, and the check of its chain."""

from typing import Final

from starlette.responses import Response

from console.account.audit_events import choice_in, file_of, listed_events
from console.display.event_words import KINDS
from console.services import if_available
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb

PATH: Final = "/operator/audit-log"
# The check reads every event.
VERIFY_TIMEOUT_S: Final = 120.0


async def show(
    visit: Visit, verified: pb.VerifyAuditEventsResponse | None = None, *, is_unknown: bool = False
) -> Response:
    return visit.render(
        "operator_audit_log.html",
        503 if is_unknown else 200,
        kinds=tuple(KINDS),
        verified=verified,
        is_unknown=is_unknown,
        **await listed_events(visit, choice_in(visit), PATH),
    )


async def download(visit: Visit) -> Response:
    return await file_of(visit, choice_in(visit))


async def verify(visit: Visit) -> Response:
    check = visit.auth.audit.VerifyAuditEvents(pb.VerifyAuditEventsRequest(), timeout=VERIFY_TIMEOUT_S)
    verified = await if_available(check)
    return await show(visit, verified, is_unknown=verified is None)
