"""Reports an account's usage by hour, by day or of a whole period, oldest first."""

import heapq
from functools import cache
from typing import Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.records import DAY_US
from services.metering.reports.local_days import find_local_days, require_hours
from services.metering.reports.store.key_sums import KeySums, read_key_sums
from services.metering.reports.store.usage import CountedRow, UsageReportQuery, read_usage
from services.metering.store import Connection
from services.rules.usage import Usage

# Fits into one response, with room to spare.
ROWS_MOST: Final = 100_000


class UsageRow(msgspec.Struct, frozen=True):
    """One row of the report. An empty key or class stands for all of them."""

    start_us: int
    key_id: str
    class_id: str
    requests: int
    usage: Usage
    cost_nanos: int


def report_usage(connection: Connection, query: UsageReportQuery) -> tuple[list[UsageRow], int]:
    """Returns the rows; and if only the keys with the highest costs are asked for, how many other keys the last row
    adds up, which has no key. 0: there is no such row."""
    require_hours(query.start_us, query.end_us)
    period = query.account_id, query.start_us, query.end_us
    if query.top_keys:
        by_key = read_key_sums(connection, *period)
        top = _most_expensive(by_key, query.top_keys)
        others = [sums for key_id, sums in by_key.items() if key_id not in top]
        shown = [*top.items(), *([("", tuple(map(sum, zip(*others, strict=True))))] if others else [])]
        return [_to_row(query.start_us, key_id, "", *sums) for key_id, sums in shown], len(others)
    days = find_local_days(query.time_zone if query.bucket_us == DAY_US else "", query.start_us, query.end_us)
    if query.group_by_key and not query.group_by_class and not query.bucket_us:
        by_key = read_key_sums(connection, *period)
        chosen = by_key.keys() & query.key_ids if query.key_ids else by_key
        rows: list[CountedRow] = [(0, key_id, "", *by_key[key_id]) for key_id in sorted(chosen)]
    else:
        rows = read_usage(connection, query, days.offsets, ROWS_MOST + 1)
    if len(rows) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("period_too_long"), param="start_time")
    # A start is that of many keys.
    start_of = cache(days.start_us)
    return [_to_row(start_of(row[0]) if query.bucket_us else query.start_us, *row[1:]) for row in rows], 0


def _most_expensive(by_key: dict[str, KeySums], most: int) -> dict[str, KeySums]:
    return dict(heapq.nsmallest(most, by_key.items(), key=lambda item: (-item[1][-1], item[0])))


def _to_row(start_us: int, key_id: str, class_id: str, requests: int, *counted: int) -> UsageRow:
    *tokens, cost_nanos = counted
    return UsageRow(start_us, key_id, class_id, requests, Usage(*tokens), cost_nanos)
