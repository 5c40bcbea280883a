"""Converts statements and receipts between the .proto's messages and the domain."""

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from protos.metering.v1 import metering_pb2, statements_pb2
from services.metering.account_audits import AuditProgress
from services.metering.ledger.prices import Price, Usage
from services.metering.ledger.records import Kind
from services.metering.statements import (
    DaysQuery,
    PagePosition,
    PriceList,
    RequestsPage,
    StatementDays,
    StatementEntry,
    StatementPage,
    StatementQuery,
)
from services.metering.store.statements import Receipt, RequestFilter
from services.metering.wire.credits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MOST
from services.metering.wire.operations import checked_id, invalid
from services.metering.wire.page_token import from_token, to_token
from services.metering.wire.reports import (
    LATEST_S,
    from_basis,
    from_end,
    from_hold,
    from_usage,
    to_timestamp,
)

CHOSEN_MOST: Final = 1_000

_KINDS: Final[dict[Kind, "statements_pb2.LedgerEntryKind.ValueType"]] = {
    "grant": statements_pb2.LEDGER_ENTRY_KIND_GRANT,
    "adjustment": statements_pb2.LEDGER_ENTRY_KIND_ADJUSTMENT,
    "charge": statements_pb2.LEDGER_ENTRY_KIND_CHARGE,
    "late_charge": statements_pb2.LEDGER_ENTRY_KIND_LATE_CHARGE,
    "loss": statements_pb2.LEDGER_ENTRY_KIND_LOSS,
}


def to_entries_query(request: statements_pb2.ListLedgerEntriesRequest) -> StatementQuery:
    return _to_query(request, newest_first=request.newest_first)


def to_requests_query(request: statements_pb2.ListRequestsRequest) -> StatementQuery:
    chosen = RequestFilter(
        tuple(checked_id(each, "key_ids") for each in request.key_ids),
        tuple(checked_id(each, "class_ids") for each in request.class_ids),
    )
    if len(chosen.key_ids) > CHOSEN_MOST or len(chosen.class_ids) > CHOSEN_MOST:
        raise invalid("At most 1,000 keys and classes can be chosen.", "key_ids")
    return replace(_to_query(request, newest_first=True), chosen=chosen)


def to_days_query(request: statements_pb2.ListLedgerDaysRequest) -> DaysQuery:
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise invalid("Days are listed from a start to an end.", "start_time")
    start_us, end_us = _microseconds(request.start_time, "start_time"), _microseconds(request.end_time, "end_time")
    if start_us > end_us:
        raise invalid("The start must not be after the end.", "start_time")
    return DaysQuery(checked_id(request.account_id, "account_id"), start_us, end_us, request.time_zone)


def from_statement_page(page: StatementPage) -> statements_pb2.ListLedgerEntriesResponse:
    return statements_pb2.ListLedgerEntriesResponse(
        entries=map(_from_entry, page.entries), next_page_token=_to_token(page.next_position)
    )


def from_statement_days(listed: StatementDays) -> statements_pb2.ListLedgerDaysResponse:
    return statements_pb2.ListLedgerDaysResponse(
        opening_balance_nanos=listed.opening_nanos,
        days=[
            statements_pb2.LedgerDay(
                start_time=to_timestamp(day.start_us),
                requests=day.sums.requests,
                charged_nanos=day.sums.charged_nanos,
                credited_nanos=day.sums.credited_nanos,
                loss_nanos=day.sums.loss_nanos,
                balance_nanos=day.balance_nanos,
            )
            for day in listed.days
        ],
        bookings=[_from_entry(StatementEntry(stored, 0)) for stored in listed.bookings],
    )


def from_requests_page(page: RequestsPage) -> statements_pb2.ListRequestsResponse:
    return statements_pb2.ListRequestsResponse(
        running=map(_from_receipt, page.running),
        requests=map(_from_receipt, page.charged),
        next_page_token=_to_token(page.next_position),
    )


def from_found(receipt: Receipt | None) -> statements_pb2.ListRequestsResponse:
    """Answers a lookup by id."""
    if receipt is None:
        return statements_pb2.ListRequestsResponse()
    found = [_from_receipt(receipt)]
    if receipt.hold.state == "held":
        return statements_pb2.ListRequestsResponse(running=found)
    return statements_pb2.ListRequestsResponse(requests=found)


def from_price_list(listed: PriceList) -> statements_pb2.ListPricesResponse:
    return statements_pb2.ListPricesResponse(
        current_version=listed.current_version,
        versions=[
            statements_pb2.PriceVersion(
                version=stored.version,
                start_time=to_timestamp(stored.effective_from_us),
                prices=[
                    statements_pb2.ClassPrice(class_id=class_id, price=_from_price(stored.version, price))
                    for class_id, price in stored.prices.items()
                ],
            )
            for stored in listed.versions
        ],
    )


def _to_query(
    request: statements_pb2.ListLedgerEntriesRequest | statements_pb2.ListRequestsRequest, *, newest_first: bool
) -> StatementQuery:
    if request.page_size < 0:
        raise invalid("The page size must not be negative.", "page_size")
    start_us = _microseconds(request.start_time, "start_time") if request.HasField("start_time") else None
    end_us = _microseconds(request.end_time, "end_time") if request.HasField("end_time") else None
    if start_us is not None and end_us is not None and start_us > end_us:
        raise invalid("The start must not be after the end.", "start_time")
    return StatementQuery(
        account_id=checked_id(request.account_id, "account_id"),
        start_us=start_us,
        end_us=end_us,
        newest_first=newest_first,
        size=min(request.page_size, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT,
        position=PagePosition(*from_token(request.page_token, 3)) if request.page_token else None,
    )


def _to_token(position: PagePosition | None) -> str:
    return "" if position is None else to_token(*position)


def _microseconds(given: Timestamp, param: str) -> int:
    if abs(given.seconds) >= LATEST_S:
        raise invalid("A time must lie before the year 10000.", param)
    return given.seconds * 1_000_000 + given.nanos // 1000


def _from_entry(listed: StatementEntry) -> statements_pb2.LedgerEntry:
    entry_id, entry = listed.stored
    usage = Usage(entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens)
    return statements_pb2.LedgerEntry(
        entry_id=entry_id,
        kind=_KINDS[entry.kind],
        time=to_timestamp(entry.recorded_at_us),
        amount_nanos=entry.customer_nanos,
        balance_nanos=listed.balance_nanos,
        reference_id=entry.request_id,
        key_id=entry.key_id,
        class_id=entry.class_id,
        usage=from_usage(usage) if entry.price_version else None,
        price_version=entry.price_version,
        basis=from_basis(entry.basis),
        end=from_end(entry.end),
        loss_nanos=-entry.loss_nanos,
        reason=entry.reason or "",
    )


def _from_receipt(receipt: Receipt) -> statements_pb2.RequestReceipt:
    hold, request = receipt.hold, from_hold(receipt.hold)
    return statements_pb2.RequestReceipt(
        request_id=request.request_id,
        key_id=request.key_id,
        class_id=request.class_id,
        state=request.state,
        reserve_time=request.reserve_time if request.HasField("reserve_time") else None,
        end_time=request.end_time if request.HasField("end_time") else None,
        usage=request.usage,
        held_nanos=request.held_nanos,
        cost_nanos=hold.booked_nanos,
        charged_nanos=hold.charged_nanos,
        loss_nanos=hold.loss_nanos,
        price=None if receipt.price is None else _from_price(hold.price_version, receipt.price),
        basis=request.basis,
        end=request.end,
    )


def _from_price(version: int, price: Price) -> metering_pb2.Price:
    return metering_pb2.Price(
        version=version,
        input_nanos_per_million=price.input_nanos,
        cached_input_nanos_per_million=price.cached_input_nanos,
        output_nanos_per_million=price.output_nanos,
    )


def from_audit(progress: AuditProgress) -> statements_pb2.AuditAccountResponse:
    if progress.found is None:
        return statements_pb2.AuditAccountResponse(is_running=True, took_ms=round(progress.running_s * 1000))
    audit, _, ended_at, took_s = progress.found
    return statements_pb2.AuditAccountResponse(
        violations=audit.violations,
        entries=audit.entries,
        balance_nanos=audit.balance_nanos,
        audit_time=to_timestamp(round(ended_at.timestamp() * 1_000_000)),
        took_ms=round(took_s * 1000),
    )
