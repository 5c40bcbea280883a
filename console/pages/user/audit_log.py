"""Everything that the signed-in user did, in all accounts: with filters, and as a file."""

from starlette.responses import Response

from console.account.audit_events import choice_in, file_of, listed_events
from console.display.event_words import KINDS
from console.web.visit import Visit

PATH = "/security/audit-log"


async def show(visit: Visit) -> Response:
    events = await listed_events(visit, choice_in(visit), PATH, user_id=visit.who.user.user_id)
    return visit.render("audit_log.html", is_account=False, kinds=tuple(KINDS), people={}, key_names=None, **events)


async def download(visit: Visit) -> Response:
    return await file_of(visit, choice_in(visit), user_id=visit.who.user.user_id)
