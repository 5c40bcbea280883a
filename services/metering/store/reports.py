"""Reads balances, usage, single requests, and overdue holds."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import now_us_expression, read_now_us
from services.chassis.database.compiled_query import CompiledQuery
from services.metering.ledger.records import BILLED, HOUR_US, AccountBalance, Entry, Hold
from services.metering.store.sets import Lookup, select_all
from services.metering.store.tables import accounts, holds, ledger, usage_hours

# Below either database's limit of parameters per statement.
_IDS_AT_ONCE: Final = 10_000

# A literal, so that every plan can use the partial index of live holds.
_IS_LIVE: Final = holds.c.state == sa.literal_column("'held'")
_START_US: Final = sa.bindparam("start_us", type_=sa.BigInteger)
_END_US: Final = sa.bindparam("end_us", type_=sa.BigInteger)
_IN_PERIOD: Final = sa.and_(
    usage_hours.c.account_id == sa.bindparam("account_id"),
    usage_hours.c.hour_us >= _START_US,
    usage_hours.c.hour_us < _END_US,
)
_FIRST_HOUR: Final = CompiledQuery(sa.select(sa.func.min(usage_hours.c.hour_us)).where(_IN_PERIOD))
_LAST_HOUR: Final = CompiledQuery(sa.select(sa.func.max(usage_hours.c.hour_us)).where(_IN_PERIOD))
_ROW_AT: Final = CompiledQuery(
    sa.select(usage_hours.c.hour_us).where(_IN_PERIOD).limit(1).offset(sa.bindparam("place", type_=sa.BigInteger))
)
# The hours of a list.
_HOURS: Final = {
    "sqlite": "hour_us IN (SELECT value FROM json_each(:hours_us))",
    "postgresql": "hour_us = ANY (CAST(:hours_us AS bigint[]))",
}
# A counter that is looked up takes as long as so many that are read in their order.
_ROWS_A_LOOKUP: Final = 5
# To find out whether there are more takes too long.
_ROWS_WORTH_READING: Final = 300_000
_BALANCES: Final = Lookup(select_all(accounts), "account_id")


def read_balances(connection: sa.Connection, account_ids: Sequence[str]) -> list[AccountBalance]:
    """Returns balances in the order of the ids. An account without any grant has zero."""
    found: dict[str, AccountBalance] = {}
    for start in range(0, len(account_ids), _IDS_AT_ONCE):
        some = account_ids[start : start + _IDS_AT_ONCE]
        found |= {row[0]: AccountBalance(*row) for row in _BALANCES.run(connection, some)}
    return [found.get(account_id) or AccountBalance(account_id) for account_id in account_ids]


def bucket_start(
    at_us: sa.ColumnElement[int], bucket_us: int, offsets: Sequence[tuple[int, int]]
) -> sa.ColumnElement[int]:
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
    connection: sa.Connection,
    account_id: str,
    start_us: int,
    end_us: int,
    *,
    bucket_us: int,
    offsets: Sequence[tuple[int, int]],
    by_key: bool,
    by_class: bool,
    rows_most: int,
    key_ids: Sequence[str] = (),
) -> list[tuple[Any, ...]]:
    """Returns rows of start, key, class, requests, three kinds of tokens, and cost; the oldest first. A start is in
    the local time of `offsets`, as `LocalDays` has them; without a bucket it is 0."""
    values: dict[str, Any] = {"account_id": account_id, "rows_most": rows_most}
    hours_us = _hours_to_look_up(connection, account_id, start_us, end_us, len(key_ids)) if key_ids else None
    if hours_us is None:
        values |= {"start_us": start_us, "end_us": end_us}
    else:
        values["hours_us"] = str(hours_us) if connection.dialect.name == "sqlite" else hours_us
    if key_ids:
        values["key_ids"] = list(key_ids)
    query = _usage_query(
        bucket_us,
        tuple(offsets),
        by_key=by_key,
        by_class=by_class,
        of_keys=bool(key_ids),
        hours=_HOURS[connection.dialect.name] if hours_us is not None else "",
    )
    return [tuple(row) for row in connection.execute(query, values)]


def _hours_to_look_up(
    connection: sa.Connection, account_id: str, start_us: int, end_us: int, keys: int
) -> list[int] | None:
    """Returns the hours of a period in which an account was used, if to find the counters of some keys one by one is
    less work than to read those of all its keys; None otherwise."""
    period = {"account_id": account_id, "start_us": start_us, "end_us": end_us}
    [(first_us,)], [(last_us,)] = _FIRST_HOUR.all(connection, **period), _LAST_HOUR.all(connection, **period)
    if first_us is None:
        return None
    hours_us = list(range(first_us, last_us + HOUR_US, HOUR_US))
    rows_most = len(hours_us) * keys * _ROWS_A_LOOKUP
    if rows_most > _ROWS_WORTH_READING or not _ROW_AT.all(connection, place=rows_most, **period):
        return None
    return hours_us


# To build it takes longer than to run it.
@lru_cache(maxsize=64)
def _usage_query(
    bucket_us: int, offsets: tuple[tuple[int, int], ...], *, by_key: bool, by_class: bool, of_keys: bool, hours: str
) -> sa.Select[Any]:
    hour_us = usage_hours.c.hour_us
    start = bucket_start(hour_us, bucket_us, offsets) if bucket_us else _literal(0)
    groups = [
        start.label("start_us"),
        usage_hours.c.key_id if by_key else sa.literal_column("''").label("key_id"),
        usage_hours.c.class_id if by_class else sa.literal_column("''").label("class_id"),
    ]
    names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos")
    # PostgreSQL sums integers to decimals.
    sums = [sa.cast(sa.func.sum(usage_hours.c[name]), sa.BigInteger).label(name) for name in names]
    query = (
        sa.select(*groups, *sums)
        .where(usage_hours.c.account_id == sa.bindparam("account_id"))
        .where(sa.text(hours) if hours else sa.and_(hour_us >= _START_US, hour_us < _END_US))
        .group_by(sa.text("1"), sa.text("2"), sa.text("3"))
        .order_by(sa.text("1"), sa.text("2"), sa.text("3"))
        .limit(sa.bindparam("rows_most"))
    )
    return query.where(usage_hours.c.key_id.in_(sa.bindparam("key_ids", expanding=True))) if of_keys else query


def read_request(connection: sa.Connection, account_id: str, request_id: str) -> Hold | None:
    """Returns a request; None if there is none, or it is of another account. If its hold was pruned, it is known by its
    entries."""
    query = sa.select(holds).where(holds.c.request_id == request_id, holds.c.account_id == account_id)
    row = connection.execute(query).one_or_none()
    if row is not None:
        return Hold(*row)
    return read_requests_of_entries(connection, account_id, [request_id]).get(request_id)


def read_requests_of_entries(connection: sa.Connection, account_id: str, request_ids: Sequence[str]) -> dict[str, Hold]:
    """Returns what the entries of requests tell that their holds did, but for when they began."""
    if not request_ids:
        return {}
    is_meant = (ledger.c.request_id.in_(request_ids), ledger.c.kind.in_(BILLED), ledger.c.account_id == account_id)
    entries: dict[str, list[Entry]] = {}
    for row in connection.execute(sa.select(ledger).where(*is_meant).order_by(ledger.c.entry_id)):
        entries.setdefault(row.request_id, []).append(Entry(*row[1:]))
    return {request_id: _hold_of(of_request) for request_id, of_request in entries.items()}


def _hold_of(entries: Sequence[Entry]) -> Hold:
    first, last = entries[0], entries[-1]
    return Hold(
        request_id=first.request_id,
        account_id=first.account_id,
        key_id=first.key_id,
        class_id=first.class_id,
        state="void" if last.kind == "loss" else "settled",
        price_version=first.price_version,
        prompt_tokens=sum(entry.prompt_tokens for entry in entries),
        cached_tokens=sum(entry.cached_tokens for entry in entries),
        completion_tokens=sum(entry.completion_tokens for entry in entries),
        charged_nanos=-sum(entry.customer_nanos for entry in entries),
        loss_nanos=-sum(entry.loss_nanos for entry in entries),
        basis=last.basis,
        end=last.end,
        counted_hour_us=first.hour_us or None,
        resolved_at_us=last.recorded_at_us,
    )


class Overdue(NamedTuple):
    request_id: str
    account_id: str
    deadline_at_us: int


def any_overdue(*, is_sqlite: bool) -> str:
    """Returns a query that has a row if a hold is past its deadline."""
    now_us = now_us_expression(is_sqlite=is_sqlite)
    return f"SELECT 1 FROM holds WHERE state = 'held' AND deadline_at_us < {now_us} LIMIT 1"  # noqa: S608 - no values


def find_overdue(connection: sa.Connection, most: int, after: Overdue | None = None) -> list[Overdue]:
    """Returns holds past their deadline, the longest overdue first; `after` is the last of the previous portion."""
    order = (holds.c.deadline_at_us, holds.c.request_id)
    query = (
        sa.select(holds.c.request_id, holds.c.account_id, holds.c.deadline_at_us)
        .where(_IS_LIVE, holds.c.deadline_at_us < read_now_us(connection))
        .order_by(*order)
        .limit(most)
    )
    if after is not None:
        query = query.where(sa.tuple_(*order) > sa.tuple_(after.deadline_at_us, after.request_id))
    return [Overdue(*row) for row in connection.execute(query)]


class HoldCounts(NamedTuple):
    live: int
    # Past their deadline.
    overdue: int


def count_holds(connection: sa.Connection) -> HoldCounts:
    is_overdue = holds.c.deadline_at_us < read_now_us(connection)
    query = sa.select(sa.func.count(), sa.func.count().filter(is_overdue)).where(_IS_LIVE)
    return HoldCounts(*connection.execute(query).one())
