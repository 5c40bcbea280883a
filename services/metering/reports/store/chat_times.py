"""Sums up how long chats took, by hour, day and month, and reads these sums.

They are made of the ledger's entries and their holds together with the sums by model, some minutes after the entries
were written: so a chat writes nothing for it but the times in its hold. A report adds the entries that came since.
"""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
import sqlalchemy as sa

from services.metering.credit.calendar import day_start_us, month_start_us, next_day_us, next_month_us
from services.metering.reports.chat_times import Measure, bucket_of
from services.metering.reports.store.tables import CHAT_TIME, chat_times
from services.metering.store.sets import Query, insert_rows, read_all

# What a row is of, the longest first. Those of a single key have the prefix; others are of all keys together.
Grain = Literal["month", "day", "hour"]
GRAINS: Final[tuple[Grain, ...]] = get_args(Grain)
OF_A_KEY: Final = "key_"
ALL_KEYS: Final = ""
# When the month or the day of a time began, and when the next one does.
_BOUNDS: Final[Mapping[Grain, tuple[Callable[[int], int], Callable[[int], int]]]] = {
    "month": (month_start_us, next_month_us),
    "day": (day_start_us, next_day_us),
}
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


class TimeSpan(NamedTuple):
    """A part of a period, of whole hours, days or months of UTC."""

    grain: Grain
    start_us: int
    # Exclusive.
    end_us: int


def spans_of(start_us: int, end_us: int, grains: Sequence[Grain] = GRAINS) -> list[TimeSpan]:
    """Divides a period of whole hours into its months, the days around them, and the hours around those."""
    grain, *shorter = grains
    if start_us >= end_us:
        return []
    if not shorter:
        return [TimeSpan(grain, start_us, end_us)]
    start_of, next_of = _BOUNDS[grain]
    first_us, last_us = next_of(start_us - 1), start_of(end_us)
    if first_us >= last_us:
        return spans_of(start_us, end_us, shorter)
    whole = TimeSpan(grain, first_us, last_us)
    return [*spans_of(start_us, first_us, shorter), whole, *spans_of(last_us, end_us, shorter)]


_TIMES: Final = (
    "SELECT entry.account_id, entry.hour_us, entry.key_id, entry.class_id, hold.first_token_ms, hold.duration_ms,"
    ' hold."end" FROM ledger AS entry JOIN holds AS hold ON hold.request_id = entry.request_id'
    " WHERE entry.entry_id > :after_id AND entry.entry_id <= :last_id AND entry.requests = 1"
    " AND hold.duration_ms IS NOT NULL"
)
_SUMMED: Final = sa.text(_TIMES)
_RECENT: Final = sa.text(f"{_TIMES} AND entry.account_id = :account_id ORDER BY entry.entry_id LIMIT :most")
_PUT: Final = insert_rows(
    chat_times,
    [*CHAT_TIME, "chats_by_bucket"],
    f"ON CONFLICT ({', '.join(CHAT_TIME)}) DO UPDATE SET chats_by_bucket = excluded.chats_by_bucket",
)
_decode_counts: Final = msgspec.json.Decoder(dict[int, int]).decode


def sum_up_times(connection: sa.Connection, after_id: int, last_id: int) -> None:
    """Adds the chats that were charged by the entries in a range of ids."""
    sums: defaultdict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    for account_id, hour_us, key_id, class_id, measure, bucket in _times_of(
        connection.execute(_SUMMED, {"after_id": after_id, "last_id": last_id})
    ):
        kind = (class_id, measure)
        for grain in GRAINS:
            start_us = _BOUNDS[grain][0](hour_us) if grain in _BOUNDS else hour_us
            sums[account_id, grain, ALL_KEYS, start_us, *kind][bucket] += 1
            sums[account_id, OF_A_KEY + grain, key_id, start_us, *kind][bucket] += 1
    if not sums:
        return
    # Nobody else writes: the caller has locked the mark of what is summed up.
    is_sqlite = connection.dialect.name == "sqlite"
    [found] = read_all(connection, [(_found_query(is_sqlite=is_sqlite), (msgspec.json.encode([*sums]).decode(),))])
    for *row, counts in found:
        sums[tuple(row)].update(_decode_counts(counts))
    _PUT.run(connection, [(*row, msgspec.json.encode(counts).decode()) for row, counts in sums.items()])


def _found_query(*, is_sqlite: bool) -> str:
    """Builds the query for the rows whose keys are given as arrays."""
    given = "json_each(?) AS given" if is_sqlite else "json_array_elements(CAST(%s AS json)) AS given(value)"
    forms = ["json_extract(given.value, '$[{0}]')" if is_sqlite else "given.value ->> {0}"] * len(CHAT_TIME)
    if not is_sqlite:
        forms[CHAT_TIME.index("start_us")] = "CAST(given.value ->> {0} AS BIGINT)"
    is_its_key = (f"found.{name} = ({forms[place].format(place)})" for place, name in enumerate(CHAT_TIME))
    columns = ", ".join(f"found.{name}" for name in (*CHAT_TIME, "chats_by_bucket"))
    return f"SELECT {columns} FROM {given} JOIN chat_times AS found ON {' AND '.join(is_its_key)}"


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
    spans: Sequence[TimeSpan],
    key_ids: Sequence[str] = (),
) -> list[list[tuple[str, str, Measure, dict[int, int]]]]:
    """Returns, for each span, rows of key, class, measure, and how many chats by bucket; of some keys, or of all
    together, whose id is empty. There may be several rows of the same."""
    is_sqlite = connection.dialect.name == "sqlite"
    keys_json = msgspec.json.encode(list(key_ids) or [ALL_KEYS]).decode()
    prefix, text = OF_A_KEY if key_ids else "", _span_query(is_sqlite=is_sqlite)
    queries: list[Query] = [
        (text, (account_id, prefix + span.grain, keys_json, span.start_us, span.end_us)) for span in spans
    ]
    return [
        [(key_id, class_id, measure, _decode_counts(counts)) for key_id, class_id, measure, counts in rows]
        for rows in read_all(connection, queries)
    ]


def _span_query(*, is_sqlite: bool) -> str:
    mark = "?" if is_sqlite else "%s"
    # An array, so that PostgreSQL uses the index even without statistics.
    keys = (
        "key_id IN (SELECT value FROM json_each(?))"
        if is_sqlite
        else "key_id = ANY (ARRAY(SELECT json_array_elements_text(CAST(%s AS json))))"
    )
    return (
        "SELECT key_id, class_id, measure, chats_by_bucket FROM chat_times"
        f" WHERE account_id = {mark} AND grain = {mark} AND {keys} AND start_us >= {mark} AND start_us < {mark}"
    )


def delete_hours(connection: sa.Connection, account_ids: Sequence[str], start_us: int, end_us: int) -> int:
    """Deletes the hours of a period, whose days and months stay; returns how many rows."""
    is_hour = chat_times.c.grain.in_(("hour", f"{OF_A_KEY}hour"))
    is_meant = sa.and_(chat_times.c.account_id.in_(account_ids), chat_times.c.start_us >= start_us)
    deleted: sa.CursorResult[Any] = connection.execute(
        sa.delete(chat_times).where(is_hour, is_meant, chat_times.c.start_us < end_us)
    )
    return deleted.rowcount
