"""Converts statements, receipts and histories of credit between the .proto's messages and the domain."""

from typing import Final

from msgspec.structs import replace

from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.type.v1 import usage_pb2
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.metering.audit.account_audits import AuditProgress
from services.metering.credit.messages import from_price, reported_fields
from services.metering.credit.store.prices import PriceList
from services.metering.messages import checked_id, checked_page_size, from_token, invalid, to_microseconds, to_token
from services.metering.statements.credit_history import BEGINNING, CreditPage, CreditPosition
from services.metering.statements.rules import PagePosition, RequestsPage, StatementDays, StatementPage, StatementQuery
from services.metering.statements.store.entries import Receipt, RequestFilter, StatementEntry

CHOSEN_MOST: Final = 1_000


def to_credit_query(request: metering_pb2.ListCreditsRequest) -> tuple[str, CreditPosition, int]:
    """Returns the account, the position after which the page begins, and its size."""
    after = CreditPosition(*from_token(request.page_token, 2)) if request.page_token else BEGINNING
    return checked_id(request.account_id, "account_id"), after, checked_page_size(request.page_size)


def from_credit_page(page: CreditPage) -> metering_pb2.ListCreditsResponse:
    return metering_pb2.ListCreditsResponse(
        entries=[to_message(metering_pb2.CreditEntry, entry, time=to_timestamp(entry.at_us)) for entry in page.entries],
        next_page_token="" if page.next_after is None else to_token(*page.next_after),
    )


def to_entries_query(request: statements_pb2.ListLedgerEntriesRequest) -> StatementQuery:
    return _to_query(request, newest_first=request.newest_first)


def to_requests_query(request: statements_pb2.ListRequestsRequest) -> StatementQuery:
    chosen = RequestFilter(
        tuple(checked_id(each, "key_ids") for each in request.key_ids),
        tuple(checked_id(each, "class_ids") for each in request.class_ids),
    )
    if len(chosen.key_ids) > CHOSEN_MOST or len(chosen.class_ids) > CHOSEN_MOST:
        raise invalid(Sentence("keys_and_classes_most"), "key_ids")
    return replace(_to_query(request, newest_first=True), chosen=chosen)


def to_days_query(request: statements_pb2.ListLedgerDaysRequest) -> tuple[str, int, int, str]:
    """Returns the account, the start and the end, and the time zone."""
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise invalid(Sentence("days_period_missing"), "start_time")
    start_us, end_us = to_microseconds(request.start_time, "start_time"), to_microseconds(request.end_time, "end_time")
    return checked_id(request.account_id, "account_id"), start_us, end_us, request.time_zone


def from_statement_page(page: StatementPage) -> statements_pb2.ListLedgerEntriesResponse:
    return statements_pb2.ListLedgerEntriesResponse(
        entries=map(_from_entry, page.entries), next_page_token=_to_token(page.next_position)
    )


def from_statement_days(listed: StatementDays) -> statements_pb2.ListLedgerDaysResponse:
    return statements_pb2.ListLedgerDaysResponse(
        opening_balance_nanos=listed.opening_nanos,
        days=[
            to_message(
                statements_pb2.LedgerDay,
                day.sums,
                start_time=to_timestamp(day.start_us),
                balance_nanos=day.balance_nanos,
            )
            for day in listed.days
        ],
        bookings=map(_from_entry, listed.bookings),
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
                version=version,
                start_time=to_timestamp(start_us),
                prices=[
                    statements_pb2.ClassPrice(class_id=class_id, price=from_price(version, price))
                    for class_id, price in prices.items()
                ],
            )
            for (start_us, version), prices in listed.versions.items()
        ],
    )


def _to_query(
    request: statements_pb2.ListLedgerEntriesRequest | statements_pb2.ListRequestsRequest, *, newest_first: bool
) -> StatementQuery:
    start_us = to_microseconds(request.start_time, "start_time") if request.HasField("start_time") else None
    end_us = to_microseconds(request.end_time, "end_time") if request.HasField("end_time") else None
    if start_us is not None and end_us is not None and start_us > end_us:
        raise invalid(Sentence("start_after_end"), "start_time")
    return StatementQuery(
        account_id=checked_id(request.account_id, "account_id"),
        start_us=start_us,
        end_us=end_us,
        newest_first=newest_first,
        size=checked_page_size(request.page_size),
        position=PagePosition(*from_token(request.page_token, 3)) if request.page_token else None,
    )


def _to_token(position: PagePosition | None) -> str:
    return "" if position is None else to_token(*position)


def _from_entry(listed: StatementEntry) -> statements_pb2.LedgerEntry:
    entry = listed.entry
    return to_message(
        statements_pb2.LedgerEntry,
        entry,
        listed,
        time=to_timestamp(entry.recorded_at_us),
        amount_nanos=entry.customer_nanos,
        reference_id=entry.request_id,
        usage=to_message(usage_pb2.Usage, entry) if entry.price_version else None,
        loss_nanos=-entry.loss_nanos,
    )


def _from_receipt(receipt: Receipt) -> statements_pb2.RequestReceipt:
    hold, price = receipt.hold, receipt.price
    return to_message(
        statements_pb2.RequestReceipt,
        hold,
        **reported_fields(hold),
        cost_nanos=hold.booked_nanos,
        price=None if price is None else from_price(hold.price_version, price),
    )


def from_audit(progress: AuditProgress) -> statements_pb2.AuditAccountResponse:
    if progress.found is None:
        return statements_pb2.AuditAccountResponse(is_running=True, took_ms=round(progress.running_s * 1000))
    found = progress.found
    return statements_pb2.AuditAccountResponse(
        violations=found.violations,
        entries=found.entries,
        balance_nanos=found.balance_nanos,
        audit_time=to_timestamp(round(found.ended_at.timestamp() * 1_000_000)),
        took_ms=round(found.took_s * 1000),
    )
