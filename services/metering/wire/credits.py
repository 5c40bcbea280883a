"""Converts pages of balance changes between the .proto's messages and the domain."""

from protos.metering.v1 import metering_pb2 as pb
from services.chassis.rpc.messages import to_message, to_timestamp
from services.metering.credit_history import BEGINNING, CreditEntry, CreditPage, CreditPosition
from services.metering.wire.messages import checked_page_size
from services.metering.wire.operations import checked_id
from services.metering.wire.page_token import from_token, to_token


def to_credit_query(request: pb.ListCreditsRequest) -> tuple[str, CreditPosition, int]:
    """Returns the account, the position after which the page begins, and its size."""
    after = CreditPosition(*from_token(request.page_token, 2)) if request.page_token else BEGINNING
    return checked_id(request.account_id, "account_id"), after, checked_page_size(request.page_size)


def from_credit_page(page: CreditPage) -> pb.ListCreditsResponse:
    return pb.ListCreditsResponse(
        entries=map(_entry, page.entries),
        next_page_token="" if page.next_after is None else to_token(*page.next_after),
    )


def _entry(entry: CreditEntry) -> pb.CreditEntry:
    return to_message(pb.CreditEntry, entry, time=to_timestamp(entry.at_us))
