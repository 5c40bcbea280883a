"""Converts pages of balance changes between the .proto's messages and the domain."""

from typing import NamedTuple

from protos.metering.v1 import metering_pb2 as pb
from services.chassis.rpc.messages import to_message, to_timestamp
from services.metering.credit_history import BEGINNING, CreditEntry, CreditPage
from services.metering.store.credits import CreditPosition
from services.metering.wire.messages import checked_page_size
from services.metering.wire.operations import checked_id
from services.metering.wire.page_token import from_token, to_token


class CreditQuery(NamedTuple):
    account_id: str
    after: CreditPosition
    size: int


def to_credit_query(request: pb.ListCreditsRequest) -> CreditQuery:
    return CreditQuery(
        account_id=checked_id(request.account_id, "account_id"),
        after=CreditPosition(*from_token(request.page_token, 2)) if request.page_token else BEGINNING,
        size=checked_page_size(request.page_size),
    )


def from_credit_page(page: CreditPage) -> pb.ListCreditsResponse:
    return pb.ListCreditsResponse(
        entries=map(_entry, page.entries),
        next_page_token="" if page.next_after is None else to_token(*page.next_after),
    )


def _entry(entry: CreditEntry) -> pb.CreditEntry:
    return to_message(pb.CreditEntry, entry, time=to_timestamp(entry.at_us))
