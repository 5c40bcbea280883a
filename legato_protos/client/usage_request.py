"""Builds requests for usage from Python's own types."""

from datetime import datetime
from typing import Literal, TypedDict

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.chat.v1.chat_pb2 import BucketWidth, GetUsageRequest, GroupBy
from legato_protos.client.options import check_names


class UsageOptions(TypedDict, total=False):
    """The period and its division; what is left out is 24 hours, until now, by the hour."""

    # Times without a zone are in UTC.
    start: datetime
    end: datetime
    bucket_width: Literal["hour", "day"]
    group_by: tuple[Literal["model", "key", "caller"], ...]
    page_size: int
    # The `next_page_token` of the page before.
    page_token: str


def usage_request_from(options: UsageOptions) -> GetUsageRequest:
    check_names(options, UsageOptions)
    width = options.get("bucket_width", "unspecified")
    return GetUsageRequest(
        start_time=_timestamp(options.get("start")),
        end_time=_timestamp(options.get("end")),
        bucket_width=BucketWidth.Value(f"BUCKET_WIDTH_{width.upper()}"),
        group_by=[GroupBy.Value(f"GROUP_BY_{group.upper()}") for group in options.get("group_by", ())],
        page_size=options.get("page_size", 0),
        page_token=options.get("page_token", ""),
    )


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp
