"""The audit log of the whole service: filters, and the check of its chain."""

from typing import Final

from starlette.responses import Response

from console.services import if_available
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2 as pb

EVENTS_ON_A_PAGE: Final = 100
# The check reads every event.
VERIFY_TIMEOUT_S: Final = 120.0
FILTERS: Final = ("account", "user", "action")
KINDS: Final = (
    "account", "caller", "credit", "invitation", "key", "ledger", "low_balance", "maintenance", "member", "notices",
    "passkey", "recovery_codes", "routes", "sessions", "sign_in_link", "spend_limits", "user", "webhook",
)  # fmt: skip


async def show(
    visit: Visit, verified: pb.VerifyAuditEventsResponse | None = None, *, is_unknown: bool = False
) -> Response:
    query = visit.query
    filters = {name: query.get(name, "").strip()[:100] for name in FILTERS}
    request = pb.ListAuditEventsRequest(
        page_size=EVENTS_ON_A_PAGE,
        page_token=visit.page_token,
        account_id=filters["account"],
        user_id=filters["user"],
        action=filters["action"],
    )
    listed = await visit.auth.audit.ListAuditEvents(request)
    return visit.render(
        "operator_audit_log.html",
        503 if is_unknown else 200,
        events=listed.events,
        next_page=listed.next_page_token,
        filters=filters,
        kinds=KINDS,
        verified=verified,
        is_unknown=is_unknown,
    )


async def verify(visit: Visit) -> Response:
    check = visit.auth.audit.VerifyAuditEvents(pb.VerifyAuditEventsRequest(), timeout=VERIFY_TIMEOUT_S)
    verified = await if_available(check)
    return await show(visit, verified, is_unknown=verified is None)
