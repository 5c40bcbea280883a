"""Converts usage, single requests, credits and closed months between the .proto's messages and the domain."""

from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.rpc.messages import to_message, to_timestamp
from services.metering.credit_history import BEGINNING, CreditPage, CreditPosition
from services.metering.ledger.closings import Closing
from services.metering.ledger.months import CalendarMonth, parse_month
from services.metering.ledger.records import DAY_US, HOUR_US, Hold
from services.metering.store.usage import UsageReportQuery
from services.metering.usage_reports import UsageRow
from services.metering.wire.messages import checked_page_size, from_token, to_microseconds, to_token
from services.metering.wire.operations import checked_id, invalid

_BUCKETS: Final[dict[int, int]] = {
    pb.USAGE_BUCKET_HOUR: HOUR_US,
    pb.USAGE_BUCKET_DAY: DAY_US,
    pb.USAGE_BUCKET_PERIOD: 0,
}
KEYS_MOST: Final = 1_000


def to_usage_query(request: pb.ListUsageRequest) -> UsageReportQuery:
    bucket_us = _BUCKETS.get(request.bucket)
    if bucket_us is None:
        raise invalid("Usage is listed by hour, by day or for the whole period.", "bucket")
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise invalid("Usage is listed from a start to an end.", "start_time")
    if len(request.key_ids) > KEYS_MOST:
        raise invalid(f"Usage is listed of at most {KEYS_MOST:,} keys.", "key_ids")
    return UsageReportQuery(
        account_id=checked_id(request.account_id, "account_id"),
        start_us=_full_hour_us(request.start_time),
        end_us=_full_hour_us(request.end_time),
        bucket_us=bucket_us,
        group_by_key=request.group_by_key,
        group_by_class=request.group_by_class,
        time_zone=request.time_zone,
        key_ids=tuple(checked_id(key_id, "key_ids") for key_id in request.key_ids),
        top_keys=_top_keys(request),
    )


def _top_keys(request: pb.ListUsageRequest) -> int:
    if not 0 <= request.top_keys <= KEYS_MOST:
        raise invalid(f"Usage is listed of at most {KEYS_MOST:,} keys.", "top_keys")
    is_by_key_alone = request.group_by_key and not request.group_by_class and not request.key_ids
    if request.top_keys and not (is_by_key_alone and request.bucket == pb.USAGE_BUCKET_PERIOD):
        raise invalid("The keys with the highest costs are listed of a whole period, by key alone.", "top_keys")
    return request.top_keys


def from_usage_row(row: UsageRow) -> pb.UsageRow:
    return to_message(pb.UsageRow, row, start_time=to_timestamp(row.start_us))


def from_hold(hold: Hold) -> pb.GetRequestResponse:
    return to_message(pb.GetRequestResponse, hold, **told_of(hold))


def told_of(hold: Hold) -> dict[str, Any]:
    """Returns what messages about a request tell in other words than its hold."""
    told: dict[str, Any] = {"end_time": to_timestamp(hold.resolved_at_us)}
    if hold.state == "held":
        return told | {"state": pb.REQUEST_STATE_RUNNING, "held_nanos": hold.amount_nanos, "basis": None}
    return told | {"held_nanos": 0}


def to_credit_query(request: pb.ListCreditsRequest) -> tuple[str, CreditPosition, int]:
    """Returns the account, the position after which the page begins, and its size."""
    after = CreditPosition(*from_token(request.page_token, 2)) if request.page_token else BEGINNING
    return checked_id(request.account_id, "account_id"), after, checked_page_size(request.page_size)


def from_credit_page(page: CreditPage) -> pb.ListCreditsResponse:
    return pb.ListCreditsResponse(
        entries=[to_message(pb.CreditEntry, entry, time=to_timestamp(entry.at_us)) for entry in page.entries],
        next_page_token="" if page.next_after is None else to_token(*page.next_after),
    )


def to_month(text: str) -> CalendarMonth:
    try:
        return parse_month(text)
    except ValueError:
        raise invalid("A month is written YYYY-MM.", "month") from None


def from_closing(closing: Closing, pruned_before_us: int) -> pb.Closing:
    return to_message(
        pb.Closing,
        closing,
        month=str(closing.month),
        is_pruned=closing.month_us < pruned_before_us,
    )


def _full_hour_us(given: Timestamp) -> int:
    # It would silently be cut off.
    if given.nanos % 1000:
        raise invalid("A time must be at a full hour.", "start_time")
    return to_microseconds(given, "start_time")
