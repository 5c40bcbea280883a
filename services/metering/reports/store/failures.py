"""Counts the chats that failed, as edges report them, by hour, key, class and reason."""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.store.tables import FAILURE, failure_hours
from services.metering.store.sets import Query, insert_rows, read_all

# An edge that was cut off reports later. What is older, or in the future, is of a clock that is wrong: it counts now.
LATEST_US: Final = 2 * DAY_US
_ADD: Final = insert_rows(
    failure_hours,
    [*FAILURE, "chats"],
    f"ON CONFLICT ({', '.join(FAILURE)}) DO UPDATE SET chats = found.chats + excluded.chats",
)


class Failures(NamedTuple):
    """Chats that failed for one reason, as many as `chats`."""

    account_id: str
    hour_us: int
    key_id: str
    class_id: str
    reason: str
    # The answer had begun.
    is_cut: bool
    chats: int


def add_failures(connection: sa.Connection, reported: Iterable[Failures]) -> None:
    now_us = read_now_us(connection)
    sums: dict[tuple[Any, ...], int] = {}
    for each in reported:
        is_plausible = now_us - LATEST_US < each.hour_us <= now_us + HOUR_US
        at_us = each.hour_us if is_plausible else now_us
        row = tuple(each._replace(hour_us=at_us - at_us % HOUR_US)[:-1])
        sums[row] = sums.get(row, 0) + each.chats
    # In one order, so that two processes never wait for each other.
    _ADD.run(connection, [(*row, sums[row]) for row in sorted(sums)])


def read_failures(
    connection: sa.Connection, account_id: str, periods: Sequence[tuple[int, int]], key_ids: Sequence[str] = ()
) -> list[list[tuple[str, str, str, bool, int]]]:
    """Returns, for each period from a start to its end, rows of key, class, reason, whether an answer had begun, and
    how many chats; of some keys or of all."""
    is_sqlite = connection.dialect.name == "sqlite"
    text = _sums_query(of_keys=bool(key_ids), is_sqlite=is_sqlite)
    keys = (msgspec.json.encode(list(key_ids)).decode(),) if key_ids else ()
    queries: list[Query] = [(text, (account_id, *period, *keys)) for period in periods]
    return read_all(connection, queries)


def _sums_query(*, of_keys: bool, is_sqlite: bool) -> str:
    mark = "?" if is_sqlite else "%s"
    listed = "SELECT value FROM json_each(?)" if is_sqlite else "SELECT json_array_elements_text(CAST(%s AS json))"
    return (
        "SELECT key_id, class_id, reason, is_cut, CAST(sum(chats) AS BIGINT) FROM failure_hours"
        f" WHERE account_id = {mark} AND hour_us >= {mark} AND hour_us < {mark}"
        + (f" AND key_id IN ({listed})" if of_keys else "")
        + " GROUP BY 1, 2, 3, 4"
    )


def sum_up_failures(connection: sa.Connection, account_ids: Sequence[str], start_us: int, end_us: int) -> int:
    """Replaces the hours of a month by one row for each count, in its first hour; returns how many rows became
    fewer."""
    hour_us = failure_hours.c.hour_us
    is_other_hour = sa.and_(failure_hours.c.account_id.in_(account_ids), hour_us > start_us, hour_us < end_us)
    keys = [failure_hours.c[name] for name in FAILURE if name != "hour_us"]
    chats = sa.cast(sa.func.sum(failure_hours.c.chats), sa.BigInteger)
    rows = connection.execute(sa.select(*keys, chats).where(is_other_hour).group_by(*keys)).all()
    if not rows:
        return 0
    deleted: sa.CursorResult[Any] = connection.execute(sa.delete(failure_hours).where(is_other_hour))
    _ADD.run(connection, [(account_id, start_us, *rest) for account_id, *rest in rows])
    return deleted.rowcount - len(rows)
