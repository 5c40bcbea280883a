"""An account's data as a file, and the end of the account, step by step."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response

from console.account.audit_events import LogChoice, log_file
from console.account.exported_rows import account_keys, members
from console.account.grounding import if_configured
from console.account.key_names import ReportKeys
from console.account.usage import balance
from console.pages.account.credit import ledger_file
from console.pages.account.requests import RequestChoice, requests_file
from console.pages.account.usage import UsageChoice, usage_file
from console.services import LONG_READ_TIMEOUT_S
from console.web.csv_files import Row, csv_lines
from console.web.forms import Refusal
from console.web.periods import ALL_DAYS, Period
from console.web.refusals import shows_again
from console.web.visit import Visit
from console.web.zip_files import Files, as_fields, json_file, zip_response
from legato_protos.auth.v1 import accounts_pb2, auth_pb2, notices_pb2
from legato_protos.metering.v1.notices_pb2 import GetLowBalanceRequest
from legato_protos.metering.v1.spend_limits_pb2 import ListSpendLimitsRequest
from legato_protos.router.v1 import content_pb2, grounding_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# A period of more than 100 days is told by the month, and one of one or two days by the hour.
USAGE_DAYS: Final = 97
USAGE_DAYS_LEAST: Final = 3
ALL_KEYS: Final = ReportKeys("", None)


@dataclass(frozen=True, slots=True)
class Content:
    """The notes and documents of an account; None: the service is not configured for them."""

    notes: grounding_pb2.ListNotesResponse | None
    attachments: grounding_pb2.ListAttachmentsResponse | None

    @property
    def count(self) -> int:
        notes, documents = self.notes, self.attachments
        return len(notes.notes if notes else ()) + len(documents.attachments if documents else ())


async def export(visit: Visit) -> Response:
    """Sends what the service keeps for the account."""
    _require_owner(visit)
    visit.require_step_up()
    # Read before anything is sent: if a service is away, a page says so, and no file is cut off.
    settings, content = await asyncio.gather(_read_settings(visit), _read_content(visit))
    return zip_response(visit, f"legato-{visit.account_id}.zip", _files(visit, settings, content))


async def _files(visit: Visit, settings: dict[str, object], content: Content) -> Files:
    yield "account.json", json_file(settings)
    yield "members.csv", csv_lines(visit, *members(visit))
    yield "keys.csv", csv_lines(visit, *account_keys(visit))
    yield "usage.csv", _usage(visit, await visit.read_account())
    yield "ledger.csv", csv_lines(visit, *ledger_file(visit, ALL_DAYS))
    yield "requests.csv", csv_lines(visit, *requests_file(visit, RequestChoice(ALL_DAYS, ALL_KEYS, "")))
    yield "audit-log.csv", csv_lines(visit, *await log_file(visit, LogChoice(ALL_DAYS, account_id=visit.account_id)))
    if content.notes is not None:
        yield "notes.json", json_file([as_fields(note) for note in content.notes.notes])
    if content.attachments is not None:
        yield "documents.json", json_file([as_fields(each) for each in content.attachments.attachments])
        for attachment in content.attachments.attachments:
            yield f"documents/{attachment.attachment_id}.txt", _text_of(visit, attachment.attachment_id)


async def _read_settings(visit: Visit) -> dict[str, object]:
    account_id = visit.account_id
    account, notices, low_balance, spends, credit = await asyncio.gather(
        _read_account(visit),
        visit.auth.notices.GetNoticeSettings(notices_pb2.GetNoticeSettingsRequest(account_id=account_id)),
        visit.metering.notice_thresholds.GetLowBalance(GetLowBalanceRequest(account_id=account_id)),
        visit.metering.spend_limits.ListSpendLimits(ListSpendLimitsRequest(account_id=account_id)),
        balance(visit),
    )
    return {
        "account": as_fields(account),
        "balance": as_fields(credit) if credit is not None else None,
        "spend_limits": [as_fields(each) for each in spends.spends],
        "low_balance": as_fields(low_balance.low_balance),
        # Addresses of webhooks can have secrets in them.
        "webhook_hosts": [urlsplit(each.url).hostname for each in notices.settings.webhooks],
        "muted_notices": list(notices.settings.muted_kinds),
    }


async def _read_account(visit: Visit) -> auth_pb2.Account:
    """Returns the account as it is now, and not as it was when the visit began."""
    request = auth_pb2.GetAccountRequest(account_id=visit.account_id)
    return (await visit.auth.accounts.GetAccount(request)).account


async def _read_content(visit: Visit) -> Content:
    grounding, account_id = visit.router.grounding, visit.account_id
    return Content(
        *await asyncio.gather(
            if_configured(grounding.ListNotes(grounding_pb2.ListNotesRequest(account_id=account_id))),
            if_configured(grounding.ListAttachments(grounding_pb2.ListAttachmentsRequest(account_id=account_id))),
        )
    )


async def _text_of(visit: Visit, attachment_id: str) -> AsyncIterator[bytes]:
    """Reads a document's text, a part at a time."""
    request = content_pb2.ListPassagesRequest(account_id=visit.account_id, attachment_id=attachment_id)
    while True:
        listed = await visit.router.content.ListPassages(request, timeout=LONG_READ_TIMEOUT_S)
        for passage in listed.passages:
            yield f"{passage.text}\n".encode()
        request.skip += len(listed.passages)
        if not listed.has_more:
            return


def _usage(visit: Visit, account: auth_pb2.Account) -> AsyncIterator[bytes]:
    """Returns usage by day, key and class since the account was created."""
    today = visit.zone.today(visit.now)
    first = min(visit.zone.date_of(account.create_time), today - timedelta(days=USAGE_DAYS_LEAST - 1))

    async def rows() -> AsyncIterator[Row]:
        start = first
        while start <= today:
            last = start + timedelta(days=USAGE_DAYS - 1)
            if last + timedelta(days=USAGE_DAYS_LEAST) > today:
                last = today
            async for row in usage_file(visit, _choice(visit, start, last))[1]:
                yield row
            start = last + timedelta(days=1)

    columns, _rows = usage_file(visit, _choice(visit, today, today))
    return csv_lines(visit, columns, rows())


def _choice(visit: Visit, first: date, last: date) -> UsageChoice:
    return UsageChoice(Period("custom", first, last, visit.zone), "class", ALL_KEYS)


async def show_closing(visit: Visit, refusal: Refusal | None = None) -> Response:
    """Says what closing the account ends and what becomes of its credit; or how far a closing has come."""
    _require_owner(visit)
    visit.require_step_up()
    account, credit, content = await asyncio.gather(
        _read_account(visit), balance(visit), visit.optional(_read_content(visit), "content")
    )
    return visit.render("my_data_close.html", refusal=refusal, account=account, balance=credit, content=content)


@shows_again(show_closing, reasons=(Reason.UNAVAILABLE,), keeps_status=True)
async def close(visit: Visit) -> Response:
    """Closes the account: what can be used ends first, and the memberships last, so that an owner can go on where a
    service did not answer. Each step can be repeated."""
    _require_owner(visit)
    account_id, credit = visit.account_id, await balance(visit)
    closed = await visit.auth.accounts.CloseAccount(accounts_pb2.CloseAccountRequest(account_id=account_id))
    erasing = content_pb2.EraseAccountRequest(account_id=account_id)
    await visit.router.content.EraseAccount(erasing, timeout=LONG_READ_TIMEOUT_S)
    await visit.auth.accounts.EndMemberships(accounts_pb2.EndMembershipsRequest(account_id=account_id))
    visit.cookies[visit.account_cookie] = None
    visit.known = None
    return visit.render("my_data_closed.html", account=closed.account, balance=credit)


def _require_owner(visit: Visit) -> None:
    """Hides this from others at once: the services would refuse each part."""
    if not visit.who.is_owner:
        raise LegatoError(Reason.ROLE_MISSING, Sentence("role_missing"))
