"""Reports an account's usage by hour or by day, oldest first."""

from typing import Final

import msgspec

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.records import HOUR_US, Usage
from services.metering.store.reports import read_usage

# Fits into one response, with room to spare.
ROWS_MOST: Final = 100_000


class UsageReportQuery(msgspec.Struct, frozen=True):
    account_id: str
    start_us: int
    # Exclusive.
    end_us: int
    bucket_us: int
    group_by_key: bool
    group_by_class: bool


class UsageRow(msgspec.Struct, frozen=True):
    """One row of the report. An empty key or class stands for all of them."""

    start_us: int
    key_id: str
    class_id: str
    requests: int
    usage: Usage
    cost_nanos: int


async def list_usage(database: Database, query: UsageReportQuery) -> list[UsageRow]:
    if query.start_us % HOUR_US or query.end_us % HOUR_US:
        raise LegatoError(Reason.REQUEST_INVALID, "The start and the end must be full hours.", param="start_time")
    if query.start_us > query.end_us:
        raise LegatoError(Reason.REQUEST_INVALID, "The start must not be after the end.", param="start_time")
    rows = await database.read(
        lambda connection: read_usage(
            connection,
            query.account_id,
            query.start_us,
            query.end_us,
            bucket_us=query.bucket_us,
            by_key=query.group_by_key,
            by_class=query.group_by_class,
            rows_most=ROWS_MOST + 1,
        )
    )
    if len(rows) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, "The period is too long: choose a shorter one.", param="start_time")
    return [
        UsageRow(start_us, key_id, class_id, requests, Usage(prompt, cached, completion), cost_nanos)
        for start_us, key_id, class_id, requests, prompt, cached, completion, cost_nanos in rows
    ]
