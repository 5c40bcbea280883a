"""Sums up the ledger by hour, day and month: of each key, and of all keys of an account, by class, provider and model.

Entries are summed up some minutes after they were written, in the order of their ids, and the last id is noted with the
sums: until then a report adds the entries behind it. So a chat writes nothing for it, and no row is one that all chats
wait for. Who adds to the sums locks that note.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.store.tables import ledger, retention
from services.metering.reports.additions import NOTHING, SUMMED, Addition, Counts, additions_of
from services.metering.reports.spans import SPANS, Span, span_start_us
from services.metering.reports.store.entries import SUMMED_ENTRIES, force_index_plans, to_entry
from services.metering.reports.store.tables import OUTCOMES, USAGE_DAY, usage_days
from services.metering.store.schema import AnyRow
from services.metering.store.sets import insert_rows

# Longer than any transaction: an entry with a lower id may be committed after one with a higher id.
SETTLED_AFTER_US: Final = 300_000_000
# Written in milliseconds.
PORTION_MOST: Final = 200

_NEXT: Final = SUMMED_ENTRIES.limit(sa.bindparam("most"))


class DayKey(NamedTuple):
    """The key of a row, in the order of its columns."""

    of_key: bool
    span: Span
    start_us: int
    account_id: str
    key_id: str
    class_id: str
    provider: str
    model_name: str


def sum_up_portion(connection: sa.Connection, most: int, settled_after_us: int = SETTLED_AFTER_US) -> bool:
    """Adds the next entries to the sums; returns False if there are none that are old enough."""
    force_index_plans(connection)
    after_id, before_us = _lock(connection), read_now_us(connection) - settled_after_us
    entries = [to_entry(row) for row in connection.execute(_NEXT, {"after_id": after_id, "most": most})]
    old = [number for number, entry in enumerate(entries, 1) if entry.recorded_at_us < before_us]
    if not old:
        return False
    # As far as the last of them: also where the clock was set back in between.
    entries = entries[: old[-1]]
    connection.execute(sa.update(retention).values(reported_to_id=entries[-1].entry_id))
    _add(connection, (addition for entry in entries for addition in additions_of(entry)))
    return True


def add_to_days(connection: sa.Connection, additions: Iterable[Addition]) -> None:
    """Adds what is not in the ledger."""
    _lock(connection)
    _add(connection, additions)


def _lock(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(retention.c.reported_to_id).with_for_update()) or 0)


def _add(connection: sa.Connection, additions: Iterable[Addition]) -> None:
    rows: defaultdict[DayKey, Counts] = defaultdict(Counts)
    for addition in additions:
        for span in SPANS:
            start_us, group = span_start_us(span, addition.at_us), addition.group
            for key_id in {"", group.key_id}:
                rows[DayKey(bool(key_id), span, start_us, *group._replace(key_id=key_id))].add(addition)
    with_outcomes = sorted(key for key, counts in rows.items() if counts.has_outcomes)
    for (of_key, span), keys in groupby(with_outcomes, key=lambda key: key[:2]):
        for row in _read_outcomes(connection, of_key, span, [*keys]):
            if (counts := rows.get(DayKey(*row[: len(USAGE_DAY)]))) is not None:
                counts.add_outcomes(row[len(USAGE_DAY) :])
    _PUT.run(
        connection,
        [(*key, *(rows[key].sums[name] for name in SUMMED), *rows[key].outcomes()) for key in sorted(rows)],
    )


def _read_outcomes(connection: sa.Connection, of_key: bool, span: Span, keys: Sequence[DayKey]) -> Sequence[AnyRow]:
    """Returns rows of the accounts at the times of some keys, those among them."""
    values = {"of_key": of_key, "span": span, "starts_us": list({key.start_us for key in keys})}
    return connection.execute(_OUTCOMES, values | {"account_ids": list({key.account_id for key in keys})}).all()


_OUTCOMES: Final = sa.select(*(usage_days.c[name] for name in (*USAGE_DAY, *OUTCOMES))).where(
    usage_days.c.of_key == sa.bindparam("of_key"),
    usage_days.c.span == sa.bindparam("span"),
    usage_days.c.start_us.in_(sa.bindparam("starts_us", expanding=True)),
    usage_days.c.account_id.in_(sa.bindparam("account_ids", expanding=True)),
)
# Outcomes were read where some are added, and are replaced.
_CHANGES: Final = (
    *(f"{name} = found.{name} + excluded.{name}" for name in SUMMED),
    *(
        f"{name} = CASE excluded.{name} WHEN '{NOTHING}' THEN found.{name} ELSE excluded.{name} END"
        for name in OUTCOMES
    ),
)
_PUT: Final = insert_rows(
    usage_days,
    [*USAGE_DAY, *SUMMED, *OUTCOMES],
    f"ON CONFLICT ({', '.join(USAGE_DAY)}) DO UPDATE SET {', '.join(_CHANGES)}",
)


def read_summed_us(connection: sa.Connection) -> int:
    """Returns the time of the last entry that was summed up."""
    last = sa.select(retention.c.reported_to_id).scalar_subquery()
    query = sa.select(ledger.c.recorded_at_us).where(ledger.c.entry_id <= last)
    return int(connection.scalar(query.order_by(ledger.c.entry_id.desc()).limit(1)) or 0)


def delete_hours(connection: sa.Connection, account_ids: Sequence[str], start_us: int, end_us: int) -> int:
    """Deletes the hours of a period, whose days and months stay; returns how many rows."""
    deleted = connection.execute(
        sa.delete(usage_days).where(is_hour_in(start_us, end_us), usage_days.c.account_id.in_(account_ids))
    )
    return deleted.rowcount


def is_hour_in(start_us: int, end_us: int) -> sa.ColumnElement[bool]:
    # Both values of the key's first column, so that its index leads to the rows.
    is_hour = sa.and_(usage_days.c.of_key.in_((False, True)), usage_days.c.span == "hour")
    return sa.and_(is_hour, usage_days.c.start_us >= start_us, usage_days.c.start_us < end_us)
