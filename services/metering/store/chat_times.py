"""Sums up how long chats took, by hour and day, and reads these sums.

They are made of the ledger's entries and their holds together with the sums by model, some minutes after the entries
were written: so a chat writes nothing for it but the times in its hold. A report adds the entries that came since.
"""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from services.metering.ledger.chat_times import Measure, bucket_of
from services.metering.ledger.records import DAY_US
from services.metering.store.sets import Query, insert_rows, read_all
from services.metering.store.tables import CHAT_TIME, chat_times

# The hours and the days of all keys together, and of each key.
HOURS, DAYS, KEY_HOURS, KEY_DAYS = "hour", "day", "key_hour", "key_day"
ALL_KEYS: Final = ""
# Answers that ended otherwise were not whole.
_WHOLE: Final = ("complete", "credit_spent")


class TimedChat(NamedTuple):
    """One time of one chat."""

    account_id: str
    hour_us: int
    key_id: str
    class_id: str
    measure: Measure
    bucket: int


class Span(NamedTuple):
    """A part of a period, in hours or in days of UTC."""

    is_days: bool
    start_us: int
    # Exclusive.
    end_us: int


def spans_of(start_us: int, end_us: int) -> list[Span]:
    """Divides a period of whole hours into as few spans as there can be: its days, and the hours around them."""
    first_day_us, last_day_us = -(-start_us // DAY_US) * DAY_US, end_us // DAY_US * DAY_US
    if first_day_us >= last_day_us:
        return [Span(False, start_us, end_us)]
    spans = (
        Span(False, start_us, first_day_us),
        Span(True, first_day_us, last_day_us),
        Span(False, last_day_us, end_us),
    )
    return [span for span in spans if span.start_us < span.end_us]


_TIMES: Final = (
    "SELECT entry.account_id, entry.hour_us, entry.key_id, entry.class_id, hold.first_token_ms, hold.duration_ms,"
    ' hold."end" FROM ledger AS entry JOIN holds AS hold ON hold.request_id = entry.request_id'
    " WHERE entry.entry_id > :after_id AND entry.entry_id <= :last_id AND entry.requests = 1"
    " AND hold.duration_ms IS NOT NULL"
)
_SUMMED: Final = sa.text(_TIMES)
_RECENT: Final = sa.text(f"{_TIMES} AND entry.account_id = :account_id ORDER BY entry.entry_id LIMIT :most")
_ADD: Final = insert_rows(
    chat_times,
    [*CHAT_TIME, "chats"],
    f"ON CONFLICT ({', '.join(CHAT_TIME)}) DO UPDATE SET chats = found.chats + excluded.chats",
)


def sum_up_times(connection: sa.Connection, after_id: int, last_id: int) -> None:
    """Adds the chats that were charged by the entries in a range of ids."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for account_id, hour_us, key_id, class_id, *time in _times_of(
        connection.execute(_SUMMED, {"after_id": after_id, "last_id": last_id})
    ):
        day_us = hour_us - hour_us % DAY_US
        sums[account_id, HOURS, ALL_KEYS, hour_us, class_id, *time] += 1
        sums[account_id, DAYS, ALL_KEYS, day_us, class_id, *time] += 1
        sums[account_id, KEY_HOURS, key_id, hour_us, class_id, *time] += 1
        sums[account_id, KEY_DAYS, key_id, day_us, class_id, *time] += 1
    if sums:
        _ADD.run(connection, [(*row, chats) for row, chats in sums.items()])


def read_recent_times(connection: sa.Connection, account_id: str, after_id: int, most: int) -> list[TimedChat]:
    """Returns the times of the account's chats that are not summed up yet, of so many at most."""
    values = {"account_id": account_id, "after_id": after_id, "last_id": 2**63 - 1, "most": most}
    return [*_times_of(connection.execute(_RECENT, values))]


def _times_of(rows: Iterable[Any]) -> Iterator[TimedChat]:
    for account_id, hour_us, key_id, class_id, first_token_ms, duration_ms, end in rows:
        if first_token_ms is not None:
            yield TimedChat(account_id, hour_us, key_id, class_id, "first_token", bucket_of(first_token_ms))
        if end in _WHOLE:
            yield TimedChat(account_id, hour_us, key_id, class_id, "duration", bucket_of(duration_ms))


def read_times(
    connection: sa.Connection,
    account_id: str,
    spans: Sequence[Span],
    key_ids: Sequence[str] = (),
    *,
    by_key: bool = False,
) -> list[list[tuple[str, str, Measure, int, int]]]:
    """Returns, for each span, rows of key, class, measure, bucket and how many chats; of some keys, or of all together,
    whose id is empty."""
    of_keys = bool(key_ids)
    is_sqlite = connection.dialect.name == "sqlite"
    keys_json = msgspec.json.encode(list(key_ids) if of_keys else [ALL_KEYS]).decode()
    grains = (KEY_HOURS, KEY_DAYS) if of_keys else (HOURS, DAYS)
    text = _sums_query(by_key=by_key, is_sqlite=is_sqlite)
    queries: list[Query] = [
        (text, (account_id, grains[span.is_days], keys_json, span.start_us, span.end_us)) for span in spans
    ]
    return read_all(connection, queries)


def _sums_query(*, by_key: bool, is_sqlite: bool) -> str:
    key, mark = "key_id" if by_key else "''", "?" if is_sqlite else "%s"
    # An array, so that PostgreSQL uses the index even without statistics.
    keys = (
        "key_id IN (SELECT value FROM json_each(?))"
        if is_sqlite
        else "key_id = ANY (ARRAY(SELECT json_array_elements_text(CAST(%s AS json))))"
    )
    return (
        f"SELECT {key}, class_id, measure, bucket, CAST(sum(chats) AS BIGINT) FROM chat_times"
        f" WHERE account_id = {mark} AND grain = {mark} AND {keys} AND start_us >= {mark} AND start_us < {mark}"
        " GROUP BY 1, 2, 3, 4"
    )


def delete_hours(connection: sa.Connection, account_ids: Sequence[str], start_us: int, end_us: int) -> int:
    """Deletes the hours of a period, whose days stay; returns how many rows."""
    is_hour = chat_times.c.grain.in_((HOURS, KEY_HOURS))
    is_meant = sa.and_(chat_times.c.account_id.in_(account_ids), chat_times.c.start_us >= start_us)
    deleted: sa.CursorResult[Any] = connection.execute(
        sa.delete(chat_times).where(is_hour, is_meant, chat_times.c.start_us < end_us)
    )
    return deleted.rowcount
