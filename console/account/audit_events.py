"""Pages and files of the audit log: the choice that an address makes of its events, and their lines in a file."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from console.display.event_words import KINDS, event_words
from console.display.words import time_of
from console.services import every_page
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import Days, days_in
from console.web.visit import Visit, paging, with_query
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.changes import to_changes, to_json

EVENTS_ON_A_PAGE: Final = 100
FILE_PAGE_SIZE: Final = 1_000
_ID: Final = re.compile(r"[A-Za-z0-9_.:#-]{1,100}")


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The choice that an address makes; dates are days of the reader. Empty: all."""

    days: Days
    kind: str = ""
    user_id: str = ""
    object_id: str = ""
    account_id: str = ""
    only_refused: bool = False

    @property
    def query(self) -> dict[str, str]:
        fields = {
            **self.days.query,
            "action": self.kind,
            "user": self.user_id,
            "object": self.object_id,
            "account": self.account_id,
            "refused": "on" if self.only_refused else "",
        }
        return {name: value for name, value in fields.items() if value}


def choice_in(visit: Visit) -> LogChoice:
    """Reads the choice; what is no id or no kind counts as not given."""
    query = visit.query

    def id_in(name: str) -> str:
        given = query.get(name, "").strip()
        return given if _ID.fullmatch(given) else ""

    kind = query.get("action", "")
    return LogChoice(
        days_in(query),
        kind if kind in KINDS else "",
        id_in("user"),
        id_in("object"),
        id_in("account"),
        query.get("refused") == "on",
    )


async def listed_events(visit: Visit, choice: LogChoice, path: str, **own: Any) -> dict[str, Any]:
    """Reads a page of events; returns what every page of the audit log shows of them. `own` is what the page's address
    decides, and not its query."""
    request = _request(visit, replace(choice, **own), EVENTS_ON_A_PAGE, visit.page_token)
    listed = await visit.auth.audit.ListAuditEvents(request)
    return {
        # Auth numbers what metering tells it when it hears of it: that may be after what was done later.
        "events": sorted(listed.events, key=lambda event: event.time.ToNanoseconds(), reverse=True),
        "choice": choice,
        "log_path": path,
        "file_path": with_query(f"{path}.csv", choice.query),
        "zone": visit.zone,
        **paging(path, choice.query, visit.page_token, listed.next_page_token),
    }


async def file_of(visit: Visit, choice: LogChoice, **own: Any) -> Response:
    """Sends all events that are chosen. Who may not see them is refused before it begins."""
    return await csv_response(visit, "legato-audit-log.csv", *await log_file(visit, replace(choice, **own)))


async def log_file(visit: Visit, choice: LogChoice) -> tuple[Row, AsyncIterator[Row]]:
    """Reads the first events; returns the columns and the rows of the file, each with what proves it."""
    request = _request(visit, choice, FILE_PAGE_SIZE)
    request.with_proofs = True
    pages = every_page(visit.auth.audit.ListAuditEvents, request)
    return _file_row(pb.AuditEvent()), _file_rows(await anext(pages), pages)


def _request(visit: Visit, choice: LogChoice, page_size: int, page_token: str = "") -> pb.ListAuditEventsRequest:
    return pb.ListAuditEventsRequest(
        page_size=page_size,
        page_token=page_token,
        account_id=choice.account_id,
        user_id=choice.user_id,
        object_id=choice.object_id,
        action=choice.kind,
        only_refused=choice.only_refused,
        **choice.days.times(visit.zone),
    )


async def _file_rows(
    first: pb.ListAuditEventsResponse, rest: AsyncIterator[pb.ListAuditEventsResponse]
) -> AsyncIterator[Row]:
    for event in first.events:
        yield _file_row(event)
    async for page in rest:
        for event in page.events:
            yield _file_row(event)


def _file_row(event: pb.AuditEvent) -> Row:
    """Returns the event in words, then what its code is computed from, and the codes."""
    words = event_words(event)
    return {
        "event_no": event.event_no,
        "time": time_of(event.time).isoformat(),
        "event": text_cell("; ".join((words.sentence, *words.changes))),
        "user_name": text_cell(event.user_name),
        "account_name": text_cell(event.account_name),
        "object_name": text_cell(event.object_name),
        "occurred_at_us": event.time.ToMicroseconds(),
        "action": event.action,
        "user_id": event.user_id,
        "account_id": event.account_id,
        "object_id": event.object_id,
        "session_id": event.session_id,
        "network": event.network,
        "outcome": pb.AuditOutcome.Name(event.outcome).removeprefix("AUDIT_OUTCOME_").lower(),
        "changes": to_json(to_changes(event.changes)) if event.changes else "",
        "pepper_version": event.proof.pepper_version,
        "previous_code": event.proof.previous_code.hex(),
        "code": event.proof.code.hex(),
    }
