"""Credit: the balance, the statement by day and entry by entry, and the proof that everything adds up."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from starlette.responses import Response

from console.account import usage
from console.account.key_names import KeyNames, add_key_names, read_key_names
from console.account.monthly_costs import read_monthly_costs
from console.display.language import N_, _, ngettext
from console.display.words import month, time_of
from console.services import every_page, if_available
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import EARLIEST, Days, date_in, days_in
from console.web.visit import Visit, paging, with_query
from legato_protos.metering.v1 import statements_pb2 as pb
from services.chassis.money import format_usd
from services.rules.usage import COLUMNS, named

PAGE_SIZE: Final = 25
FILE_PAGE_SIZE: Final = 1_000
# What is booked for card payments has ids with it.
PAYMENT_PREFIX: Final = "stripe-"
# A page is there within about a second, however large the ledger is.
AUDIT_WAIT_MS: Final = 900
AUDIT_TIMEOUT_S: Final = 5.0
KINDS: Final = {
    pb.LEDGER_ENTRY_KIND_GRANT: N_("Grant"),
    pb.LEDGER_ENTRY_KIND_ADJUSTMENT: N_("Adjustment"),
    pb.LEDGER_ENTRY_KIND_CHARGE: N_("Charge"),
    pb.LEDGER_ENTRY_KIND_LATE_CHARGE: N_("Late charge"),
    pb.LEDGER_ENTRY_KIND_LOSS: N_("Borne by the service"),
}


@dataclass(frozen=True, slots=True)
class Month:
    first: date

    @property
    def after(self) -> "Month":
        return Month((self.first + timedelta(days=31)).replace(day=1))

    @property
    def before(self) -> "Month":
        return Month((self.first - timedelta(days=1)).replace(day=1))

    @property
    def days(self) -> Days:
        return Days(self.first, self.after.first - timedelta(days=1))

    @property
    def words(self) -> str:
        return month(self.first)

    @property
    def path(self) -> str:
        return f"/credit?month={self.first:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Day:
    when: date
    sums: pb.LedgerDay
    bookings: list[pb.LedgerEntry]

    @property
    def path(self) -> str:
        return with_query("/credit/entries", {"from": self.when.isoformat(), "to": self.when.isoformat()})

    @property
    def rows(self) -> list[tuple[str, int, int, bool]]:
        """Says what was booked, the amount, the balance after it, and whether it is the first: the newest on top. The
        charges of a day are one row, after its grants and adjustments."""
        rows, balance_nanos, requests = [], self.sums.balance_nanos, self.sums.requests
        of_payments_nanos = sum(entry.loss_nanos for entry in self.bookings)
        if self.sums.charged_nanos or requests or self.sums.loss_nanos != of_payments_nanos:
            words = ngettext("%(num)s request", "%(num)s requests", requests)
            rows.append((words, -self.sums.charged_nanos, balance_nanos, True))
            balance_nanos += self.sums.charged_nanos
        for entry in self.bookings:
            kind = _(KINDS[entry.kind])
            words = _("%(kind)s: %(reason)s", kind=kind, reason=entry.reason) if entry.reason else kind
            rows.append((words, entry.amount_nanos, balance_nanos, not rows))
            balance_nanos -= entry.amount_nanos
        return rows


@dataclass(frozen=True, slots=True)
class Statement:
    # The newest first.
    days: list[Day]
    opening_nanos: int

    @property
    def closing_nanos(self) -> int:
        return self.days[0].sums.balance_nanos if self.days else self.opening_nanos

    @property
    def loss_nanos(self) -> int:
        return sum(day.sums.loss_nanos for day in self.days)

    @property
    def payments(self) -> list[pb.LedgerEntry]:
        """Returns what was paid by card, and what of it was returned; the newest first."""
        return [entry for day in self.days for entry in day.bookings if entry.reference_id.startswith(PAYMENT_PREFIX)]


async def show(visit: Visit, audited: pb.AuditAccountResponse | None = None) -> Response:
    this_month = Month(visit.zone.today(visit.now).replace(day=1))
    given = date_in(f"{visit.query.get('month', '')}-01")
    month = Month(min(max(given or this_month.first, EARLIEST), this_month.first))
    balance, statement, monthly_costs = await asyncio.gather(
        usage.balance(visit), _read_statement(visit, month), read_monthly_costs(visit)
    )
    return visit.render(
        "credit.html",
        balance=balance,
        free_nanos=usage.free_nanos(balance) if balance else 0,
        monthly_costs=monthly_costs,
        statement=statement,
        month=month,
        is_this_month=month == this_month,
        audited=audited,
        zone=visit.zone,
        payment_prefix=PAYMENT_PREFIX,
        file_path=with_query("/credit.csv", month.days.query),
        entries_path=with_query("/credit/entries", month.days.query),
    )


async def verify(visit: Visit) -> Response:
    """Audits the account, and shows what was proven; or that it takes longer, and asks for it again."""
    request = pb.AuditAccountRequest(account_id=visit.account_id, max_wait_ms=AUDIT_WAIT_MS)
    audited = await visit.metering.statements.AuditAccount(request, timeout=AUDIT_TIMEOUT_S)
    return await show(visit, audited)


async def show_entries(visit: Visit) -> Response:
    days, page_token = days_in(visit.query), visit.page_token
    listed = await visit.metering.statements.ListLedgerEntries(_listing(visit, days, PAGE_SIZE, page_token))
    return visit.render(
        "entries.html",
        listed=listed,
        names=await read_key_names(visit, (entry.key_id for entry in listed.entries)),
        kinds=KINDS,
        days=days,
        first=days.first,
        last=days.last,
        file_path=with_query("/credit.csv", days.query),
        zone=visit.zone,
        **paging("/credit/entries", days.query, page_token, listed.next_page_token),
    )


async def download(visit: Visit) -> Response:
    return await csv_response(visit, "legato-statement.csv", *ledger_file(visit, days_in(visit.query)))


def ledger_file(visit: Visit, days: Days) -> tuple[Row, AsyncIterator[Row]]:
    """Returns the columns and the rows of the file."""
    return _file_row(pb.LedgerEntry(), KeyNames()), _file_rows(visit, days)


async def _read_statement(visit: Visit, month: Month) -> Statement | None:
    zone = visit.zone
    request = pb.ListLedgerDaysRequest(account_id=visit.account_id, time_zone=zone.name, **month.days.times(zone))
    listed = await if_available(visit.metering.statements.ListLedgerDays(request))
    if listed is None:
        return None
    bookings: dict[date, list[pb.LedgerEntry]] = {}
    for entry in reversed(listed.bookings):
        bookings.setdefault(zone.date_of(entry.time), []).append(entry)
    days = []
    for sums in reversed(listed.days):
        when = zone.date_of(sums.start_time)
        days.append(Day(when, sums, bookings.get(when, [])))
    return Statement(days, listed.opening_balance_nanos)


def _listing(visit: Visit, days: Days, page_size: int, page_token: str = "") -> pb.ListLedgerEntriesRequest:
    return pb.ListLedgerEntriesRequest(
        account_id=visit.account_id,
        newest_first=True,
        page_size=page_size,
        page_token=page_token,
        **days.times(visit.zone),
    )


async def _file_rows(visit: Visit, days: Days) -> AsyncIterator[Row]:
    names, request = KeyNames(), _listing(visit, days, FILE_PAGE_SIZE)
    async for page in every_page(visit.metering.statements.ListLedgerEntries, request):
        names = await add_key_names(visit, names, (entry.key_id for entry in page.entries))
        for entry in page.entries:
            yield _file_row(entry, names)


def _file_row(entry: pb.LedgerEntry, names: KeyNames) -> Row:
    return {
        "entry_id": entry.entry_id,
        "time": time_of(entry.time).isoformat(),
        "kind": pb.LedgerEntryKind.Name(entry.kind).removeprefix("LEDGER_ENTRY_KIND_").lower(),
        "amount_usd": format_usd(entry.amount_nanos),
        "amount_nanos": entry.amount_nanos,
        "balance_usd": format_usd(entry.balance_nanos),
        "balance_nanos": entry.balance_nanos,
        "id": text_cell(entry.reference_id),
        "class": entry.class_id,
        "key_id": entry.key_id,
        "key_name": text_cell(names.name(entry.key_id)),
        **(named(entry.usage) if entry.HasField("usage") else dict.fromkeys(COLUMNS, "")),
        "price_version": entry.price_version or "",
        "loss_nanos": entry.loss_nanos,
        "reason": text_cell(entry.reason),
    }
