"""Converts pages of balance changes between the .proto's messages and the domain."""

from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import metering_pb2 as pb
from services.metering.credit_history import BEGINNING, CreditEntry, CreditPage
from services.metering.store.credits import CreditPosition
from services.metering.wire.operations import checked_id, invalid
from services.metering.wire.page_token import from_token, to_token

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MOST: Final = 1_000

_KINDS: Final = {
    "grant": pb.CREDIT_KIND_GRANT,
    "adjustment": pb.CREDIT_KIND_ADJUSTMENT,
    "charges": pb.CREDIT_KIND_CHARGES,
}


class CreditQuery(NamedTuple):
    account_id: str
    after: CreditPosition
    size: int


def to_credit_query(request: pb.ListCreditsRequest) -> CreditQuery:
    if request.page_size < 0:
        raise invalid("The page size must not be negative.", "page_size")
    return CreditQuery(
        account_id=checked_id(request.account_id, "account_id"),
        after=CreditPosition(*from_token(request.page_token, 2)) if request.page_token else BEGINNING,
        size=min(request.page_size, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT,
    )


def from_credit_page(page: CreditPage) -> pb.ListCreditsResponse:
    return pb.ListCreditsResponse(
        entries=map(_entry, page.entries),
        next_page_token="" if page.next_after is None else to_token(*page.next_after),
    )


def _entry(entry: CreditEntry) -> pb.CreditEntry:
    time = Timestamp()
    time.FromMicroseconds(entry.at_us)
    return pb.CreditEntry(
        kind=_KINDS[entry.kind],
        time=time,
        amount_nanos=entry.amount_nanos,
        balance_nanos=entry.balance_nanos,
        booking_id=entry.booking_id,
        reason=entry.reason,
    )
