"""Reports an account's usage by hour, by day or of a whole period, oldest first."""

import heapq
from typing import Any, Final, Literal, NamedTuple

import msgspec

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.prices import Usage
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.local_days import LocalDays, find_local_days
from services.metering.store.credits import CreditPosition, StoredCredit, read_charges_by_day, read_credits
from services.metering.store.ledger_days import KeySums
from services.metering.store.reports import read_usage
from services.metering.totals.key_buckets import REPORT_MOST, Grouping
from services.metering.totals.usage_totals import UsageTotals

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


class TopKeysReport(NamedTuple):
    rows: list[UsageRow]
    # How many keys the last row adds up, which has no key; 0: there is no such row.
    other_keys: int


async def list_top_keys(database: Database, query: UsageReportQuery, totals: UsageTotals) -> TopKeysReport:
    _require_hours(query)
    top = await database.read(
        lambda connection: totals.keys.read_top(
            connection, query.account_id, query.start_us, query.end_us, query.top_keys
        )
    )
    others = [("", top.others)] if top.other_keys else []
    rows = [
        UsageRow(query.start_us, key_id, "", requests, Usage(*tokens), cost_nanos)
        for key_id, (requests, *tokens, cost_nanos) in (*top.keys, *others)
    ]
    return TopKeysReport(rows, top.other_keys)


def _require_hours(query: UsageReportQuery) -> None:
    if query.start_us % HOUR_US or query.end_us % HOUR_US:
        raise LegatoError(Reason.REQUEST_INVALID, "The start and the end must be full hours.", param="start_time")
    if query.start_us > query.end_us:
        raise LegatoError(Reason.REQUEST_INVALID, "The start must not be after the end.", param="start_time")


async def list_usage(database: Database, query: UsageReportQuery, totals: UsageTotals) -> list[UsageRow]:
    _require_hours(query)
    is_by_day = query.bucket_us == DAY_US
    days = find_local_days(query.time_zone if is_by_day else "", query.start_us, query.end_us)
    rows = await database.read(lambda connection: _read_usage(connection, query, days, totals))
    if len(rows) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, "The period is too long: choose a shorter one.", param="start_time")
    # A start is that of many keys.
    starts_us = {local_us: _start_us(query, days, local_us) for local_us in {row[0] for row in rows}}
    return [
        UsageRow(starts_us[local_us], key_id, class_id, requests, Usage(*tokens), cost_nanos)
        for local_us, key_id, class_id, requests, *tokens, cost_nanos in rows
    ]


def _read_usage(
    connection: Any, query: UsageReportQuery, days: LocalDays, totals: UsageTotals
) -> list[tuple[Any, ...]]:
    if query.group_by_key and not query.group_by_class and not query.bucket_us:
        by_key = totals.keys.read_keys(connection, query.account_id, query.start_us, query.end_us, query.key_ids)
        return [(0, key_id, "", *by_key[key_id]) for key_id in sorted(by_key)]
    grouping = Grouping(query.bucket_us, days.offsets, query.group_by_class)
    rows_most = grouping.rows_most(query.start_us, query.end_us, len(query.key_ids))
    if query.key_ids and rows_most <= REPORT_MOST:
        return _read_buckets(connection, query, grouping, totals)
    if query.group_by_key or query.key_ids:
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
    found = totals.read_buckets(
        connection, query.account_id, query.start_us, query.end_us, query.bucket_us, days.offsets
    )
    sums: dict[tuple[int, str], KeySums] = {}
    for (local_us, class_id), hour in found.items():
        place = (local_us, class_id if query.group_by_class else "")
        added = KeySums(*hour[2:7])
        sums[place] = sums[place].plus(added) if place in sums else added
    return [(local_us, "", class_id, *sums[local_us, class_id]) for local_us, class_id in sorted(sums)]


def _read_buckets(
    connection: Any, query: UsageReportQuery, grouping: Grouping, totals: UsageTotals
) -> list[tuple[Any, ...]]:
    sums: dict[tuple[int, str, str], KeySums] = {}
    found = totals.key_buckets.read(connection, query.account_id, query.start_us, query.end_us, grouping, query.key_ids)
    for key_id, of_key in found.items():
        for (local_us, class_id), added in of_key.items():
            place = (local_us, key_id if query.group_by_key else "", class_id)
            sums[place] = sums[place].plus(added) if place in sums else added
    return [(*place, *sums[place]) for place in sorted(sums)]


def _start_us(query: UsageReportQuery, days: LocalDays, local_us: int) -> int:
    return days.start_us(local_us) if query.bucket_us else query.start_us


# Lists what changed an account's balance, oldest first, with the balance after each entry.
#
# A day's charges are one entry, after the grants and adjustments of the day. Each page is read from one snapshot, and
# its balances are computed from the beginning: later bookings do not make them wrong.

BEGINNING: Final = CreditPosition(-1, -1)
# Sorts before all ledger entries of the same time.
_NO_ENTRY: Final = -1


class CreditEntry(msgspec.Struct, frozen=True):
    kind: Literal["grant", "adjustment", "charges"]
    # For charges, the start of their day.
    at_us: int
    amount_nanos: int
    balance_nanos: int
    booking_id: str = ""
    reason: str = ""


class CreditPage(msgspec.Struct, frozen=True):
    entries: list[CreditEntry]
    # The position after which the next page begins; None on the last.
    next_after: CreditPosition | None


class _Change(NamedTuple):
    position: CreditPosition
    day_us: int
    amount_nanos: int
    credit: StoredCredit | None


async def list_credits(database: Database, account_id: str, after: CreditPosition, size: int) -> CreditPage:
    (balance_nanos, credits), charged = await database.read(
        lambda connection: (
            read_credits(connection, account_id, after, size + 1),
            read_charges_by_day(connection, account_id),
        )
    )
    charges = []
    for day_us, charged_nanos in charged.items():
        position = CreditPosition(day_us + DAY_US, _NO_ENTRY)
        if position <= after:
            balance_nanos -= charged_nanos
        else:
            charges.append(_Change(position, day_us, -charged_nanos, None))
    booked = [_Change(credit.position, 0, credit.entry.customer_nanos, credit) for credit in credits]
    changes = list(heapq.merge(booked, charges, key=lambda change: change.position))
    entries = []
    for change in changes[:size]:
        balance_nanos += change.amount_nanos
        entries.append(_entry(change, balance_nanos))
    return CreditPage(entries, changes[size - 1].position if len(changes) > size else None)


def _entry(change: _Change, balance_nanos: int) -> CreditEntry:
    if change.credit is None:
        return CreditEntry("charges", change.day_us, change.amount_nanos, balance_nanos)
    entry = change.credit.entry
    kind: Literal["grant", "adjustment"] = "grant" if entry.kind == "grant" else "adjustment"
    at_us, reason = entry.recorded_at_us, entry.reason or ""
    return CreditEntry(kind, at_us, change.amount_nanos, balance_nanos, entry.request_id, reason)
