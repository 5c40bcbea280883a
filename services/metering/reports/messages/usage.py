"""Converts usage between the .proto's messages and the domain."""

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.messages import checked_id, invalid, to_microseconds
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.reports.usage import UsageRow

_BUCKETS: Final[dict[int, int]] = {
    pb.USAGE_BUCKET_HOUR: HOUR_US,
    pb.USAGE_BUCKET_DAY: DAY_US,
    pb.USAGE_BUCKET_PERIOD: 0,
}
KEYS_MOST: Final = 1_000


def to_usage_query(request: pb.ListUsageRequest) -> UsageReportQuery:
    bucket_us = _BUCKETS.get(request.bucket)
    if bucket_us is None:
        raise invalid(Sentence("usage_buckets"), "bucket")
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise invalid(Sentence("usage_period_missing"), "start_time")
    if len(request.key_ids) > KEYS_MOST:
        raise invalid(Sentence("usage_keys_most", most=KEYS_MOST), "key_ids")
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
        raise invalid(Sentence("usage_keys_most", most=KEYS_MOST), "top_keys")
    is_by_key_alone = request.group_by_key and not request.group_by_class and not request.key_ids
    if request.top_keys and not (is_by_key_alone and request.bucket == pb.USAGE_BUCKET_PERIOD):
        raise invalid(Sentence("top_keys_alone"), "top_keys")
    return request.top_keys


def from_usage_row(row: UsageRow) -> pb.UsageRow:
    return to_message(pb.UsageRow, row, start_time=to_timestamp(row.start_us))


def _full_hour_us(given: Timestamp) -> int:
    # It would silently be cut off.
    if given.nanos % 1000:
        raise invalid(Sentence("hour_not_full"), "start_time")
    return to_microseconds(given, "start_time")
