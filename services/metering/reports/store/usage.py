"""Reads an account's usage from its counters by hour: with the keys that it was used with, or of all keys together."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec
import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.database.clock import read_now_us
from services.metering.credit.records import HOUR_US
from services.metering.credit.store.tables import account_hours, usage_hours
from services.metering.store.schema import AnyQuery, total
from services.rules.usage import COLUMNS

# So many counters of single keys are looked up one by one, some 3 µs each; more are found by reading those of all keys.
LOOKUPS_MOST: Final = 60_000

ACCOUNT_ID: Final = sa.bindparam("account_id", type_=sa.Text)
START_US: Final = sa.bindparam("start_us", type_=sa.BigInteger)
END_US: Final = sa.bindparam("end_us", type_=sa.BigInteger)

# What is reported of counters.
REPORTED: Final = ("requests", *COLUMNS, "cost_nanos")
Offsets = Sequence[tuple[int, int]]
# Start, key, class, requests, the columns of usage, and cost.
CountedRow = tuple[int, str, str, *tuple[int, ...]]


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


def is_in_period(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.account_id == ACCOUNT_ID, table.c.hour_us >= START_US, table.c.hour_us < END_US)


def bucket_start(at_us: sa.ColumnElement[int], bucket_us: int, offsets: Offsets) -> sa.ColumnElement[int]:
    """Returns the start of the hour or day of a time, as a local time. The figures are literals: PostgreSQL must see
    that the expression selected is the one grouped by."""
    local_us = at_us
    if any(offset_us for _, offset_us in offsets):
        earlier = [
            (at_us < _literal(until_us), _literal(offset_us)) for (_, offset_us), (until_us, _) in pairwise(offsets)
        ]
        last = _literal(offsets[-1][1])
        local_us = at_us + (sa.case(*earlier, else_=last) if earlier else last)
    return local_us - local_us % _literal(bucket_us)


def _literal(number: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(number), sa.BigInteger)


def read_usage(
    connection: sa.Connection, query: UsageReportQuery, offsets: Offsets, rows_most: int
) -> list[CountedRow]:
    """Returns the oldest first. A start is in the local time of `offsets`, as `LocalDays` has them; without a bucket it
    is 0."""
    values = asdict(query) | {"rows_most": rows_most}
    dialect = ""
    if query.key_ids:
        used_hours = connection.execute(_USED_HOURS, values).scalar_one()
        dialect = connection.dialect.name if used_hours * len(query.key_ids) <= LOOKUPS_MOST else ""
    groups = query.group_by_key, query.group_by_class
    built = _usage_query(query.bucket_us, tuple(offsets), *groups, bool(query.key_ids), dialect)
    return [(start_us, *row) for start_us, *row in connection.execute(built, values)]


# To build it takes longer than to run it.
@lru_cache(maxsize=64)
def _usage_query(
    bucket_us: int,
    offsets: tuple[tuple[int, int], ...],
    by_key: bool,
    by_class: bool,
    is_of_keys: bool,
    lookup_dialect: str,
) -> AnyQuery:
    """Builds the query; with the name of a dialect, one that looks up each key in each hour in which the account was
    used. Otherwise databases read all counters of the period."""
    table = usage_hours if by_key or is_of_keys else account_hours
    groups = [
        bucket_start(table.c.hour_us, bucket_us, offsets) if bucket_us else _literal(0),
        table.c.key_id if by_key else sa.literal_column("''"),
        table.c.class_id if by_class else sa.literal_column("''"),
    ]
    places = [sa.text(str(place)) for place in range(1, len(groups) + 1)]
    is_meant = is_in_period(table)
    if lookup_dialect:
        hours = sa.select(account_hours.c.hour_us).where(is_in_period(account_hours))
        is_used: sa.ColumnElement[bool] = table.c.hour_us.in_(hours)
        if lookup_dialect == "postgresql":
            # An array, so that PostgreSQL uses the index even without statistics.
            is_used = table.c.hour_us == sa.any_(sa.func.array(hours.scalar_subquery()))
        is_meant = sa.and_(table.c.account_id == ACCOUNT_ID, is_used)
    query = (
        sa.select(*groups, *(total(table.c[name]) for name in REPORTED))
        .where(is_meant)
        .group_by(*places)
        .order_by(*places)
        .limit(sa.bindparam("rows_most"))
    )
    return query.where(table.c.key_id.in_(sa.bindparam("key_ids", expanding=True))) if is_of_keys else query


_COST: Final = sa.select(total(account_hours.c.cost_nanos)).where(is_in_period(account_hours))
_USED_HOURS: Final = sa.select(sa.func.count(sa.distinct(account_hours.c.hour_us))).where(is_in_period(account_hours))


def read_recent_cost(connection: sa.Connection, account_id: str, span_us: int) -> int:
    """Returns what the account spent up to now, in the whole hours of a span and the one that is running."""
    end_us = (read_now_us(connection) // HOUR_US + 1) * HOUR_US
    values = {"account_id": account_id, "start_us": end_us - span_us, "end_us": end_us}
    return int(connection.execute(_COST, values).scalar_one())
