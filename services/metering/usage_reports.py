"""Reports an account's usage by hour, by day or of a whole period, oldest first."""

from typing import Any, Final

import msgspec

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.local_days import LocalDays, find_local_days
from services.metering.ledger.prices import Usage
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store.key_totals import KeyTotals
from services.metering.store.usage import read_usage

# Fits into one response, with room to spare.
ROWS_MOST: Final = 100_000


class UsageReportQuery(msgspec.Struct, frozen=True):
    account_id: str
    start_us: int
    # Exclusive.
    end_us: int
    # 0: the whole period.
    bucket_us: int
    group_by_key: bool
    group_by_class: bool
    # The days of this zone; empty: UTC.
    time_zone: str = ""
    # Of these keys alone; empty: of all.
    key_ids: tuple[str, ...] = ()
    # Only so many, those with the highest costs, and a row for all others; 0: all.
    top_keys: int = 0


class UsageRow(msgspec.Struct, frozen=True):
    """One row of the report. An empty key or class stands for all of them."""

    start_us: int
    key_id: str
    class_id: str
    requests: int
    usage: Usage
    cost_nanos: int


async def list_top_keys(database: Database, query: UsageReportQuery, totals: KeyTotals) -> tuple[list[UsageRow], int]:
    """Returns the rows, and how many keys the last of them adds up, which has no key; 0: there is no such row."""
    _require_hours(query)
    top = await database.read(totals.read_top, query.account_id, query.start_us, query.end_us, query.top_keys)
    others = [("", top.others)] if top.other_keys else []
    rows = [
        UsageRow(query.start_us, key_id, "", requests, Usage(*tokens), cost_nanos)
        for key_id, (requests, *tokens, cost_nanos) in (*top.keys, *others)
    ]
    return rows, top.other_keys


def _require_hours(query: UsageReportQuery) -> None:
    if query.start_us % HOUR_US or query.end_us % HOUR_US:
        raise LegatoError(Reason.REQUEST_INVALID, "The start and the end must be full hours.", param="start_time")
    if query.start_us > query.end_us:
        raise LegatoError(Reason.REQUEST_INVALID, "The start must not be after the end.", param="start_time")


async def list_usage(database: Database, query: UsageReportQuery, totals: KeyTotals) -> list[UsageRow]:
    _require_hours(query)
    is_by_day = query.bucket_us == DAY_US
    days = find_local_days(query.time_zone if is_by_day else "", query.start_us, query.end_us)
    rows = await database.read(_read_usage, query, days, totals)
    if len(rows) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, "The period is too long: choose a shorter one.", param="start_time")
    # A start is that of many keys.
    local_starts_us = {row[0] for row in rows}
    starts_us = {each: days.start_us(each) if query.bucket_us else query.start_us for each in local_starts_us}
    return [
        UsageRow(starts_us[local_us], key_id, class_id, requests, Usage(*tokens), cost_nanos)
        for local_us, key_id, class_id, requests, *tokens, cost_nanos in rows
    ]


def _read_usage(connection: Any, query: UsageReportQuery, days: LocalDays, totals: KeyTotals) -> list[tuple[Any, ...]]:
    if query.group_by_key and not query.group_by_class and not query.bucket_us:
        by_key = totals.read(connection, query.account_id, query.start_us, query.end_us)
        chosen = by_key.keys() & query.key_ids if query.key_ids else by_key
        return [(0, key_id, "", *by_key[key_id]) for key_id in sorted(chosen)]
    return read_usage(
        connection,
        query.account_id,
        query.start_us,
        query.end_us,
        bucket_us=query.bucket_us,
        offsets=days.offsets,
        by_key=query.group_by_key,
        by_class=query.group_by_class,
        key_ids=query.key_ids,
        rows_most=ROWS_MOST + 1,
    )
