"""Deletes rows of closed months in small portions, and leases the right to do so to one process."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.calendar import CalendarMonth
from services.metering.credit.ledger.closings import EntryRow
from services.metering.credit.store.batches import ADD_TO_COUNTERS
from services.metering.credit.store.tables import (
    COUNTED,
    account_closings,
    account_hours,
    holds,
    ledger,
    pruned_credits,
    retention,
    usage_hours,
)
from services.metering.reports.store.days import delete_hours, is_hour_in
from services.metering.reports.store.tables import usage_days
from services.metering.store.schema import total
from services.metering.store.sets import insert_rows

_PRUNED_STATES: Final = ("settled", "void")
_CREDIT_COLUMNS: Final = tuple(column.name for column in pruned_credits.c)
_KEEP_CREDITS: Final = insert_rows(pruned_credits, _CREDIT_COLUMNS, "ON CONFLICT (kind, request_id) DO NOTHING")


# Before the first pass.
NO_HOLDER: Final = ""


def lease(connection: sa.Connection, holder: str, life_us: int) -> bool:
    """Takes the lease, or renews it; returns whether the holder has it."""
    now_us = read_now_us(connection)
    is_free = sa.or_(retention.c.lease_holder == holder, retention.c.lease_until_us < now_us)
    taken = connection.execute(
        sa.update(retention).where(is_free).values(lease_holder=holder, lease_until_us=now_us + life_us)
    )
    return taken.rowcount == 1


def has_lease(connection: sa.Connection, holder: str) -> bool:
    """Returns whether no other process has taken the lease. None can before the caller's transaction ends: so what it
    writes is not what another process is writing as well."""
    return connection.scalar(sa.select(retention.c.lease_holder).with_for_update()) in (holder, NO_HOLDER)


def mark(connection: sa.Connection, name: str, before_us: int) -> None:
    """Moves one of the limits of `RetentionState`, never back."""
    column = retention.c[name]
    connection.execute(sa.update(retention).where(column < before_us).values({name: before_us}))


def find_old_holds(connection: sa.Connection, after_id: str, before_us: int, most: int) -> tuple[list[str], str | None]:
    """Looks at so many holds in the order of their ids: an index of their age would cost each chat an insert. Returns
    the old ones, and the last that was looked at; None: there are no more."""
    is_old = sa.and_(holds.c.state.in_(_PRUNED_STATES), holds.c.resolved_at_us < before_us)
    query = sa.select(holds.c.request_id, is_old).where(holds.c.request_id > after_id)
    rows = connection.execute(query.order_by(holds.c.request_id).limit(most)).all()
    return [request_id for request_id, old in rows if old], rows[-1][0] if len(rows) == most else None


def delete_holds(connection: sa.Connection, request_ids: Sequence[str], before_us: int) -> int:
    deleted = connection.execute(
        sa.delete(holds).where(
            holds.c.request_id.in_(request_ids),
            holds.c.state.in_(_PRUNED_STATES),
            holds.c.resolved_at_us < before_us,
        )
    )
    return deleted.rowcount


def keep_credits(connection: sa.Connection, rows: Sequence[EntryRow], columns: Sequence[str]) -> None:
    """Keeps the ids of grants and adjustments among entries that will be deleted."""
    places = [columns.index(name) for name in _CREDIT_COLUMNS]
    kind = columns.index("kind")
    kept = [tuple(row[place] for place in places) for row in rows if row[kind] in ("grant", "adjustment")]
    if kept:
        _KEEP_CREDITS.run(connection, kept)


def delete_entries(connection: sa.Connection, before_us: int, last_id: int, most: int) -> int:
    """Deletes some entries that were marked as pruned, in SQLite; returns how many. None has an id after `last_id`."""
    is_pruned = sa.and_(ledger.c.entry_id <= last_id, ledger.c.recorded_at_us < before_us)
    some = sa.select(ledger.c.entry_id).where(is_pruned).order_by(ledger.c.entry_id).limit(most)
    deleted = connection.execute(sa.delete(ledger).where(ledger.c.entry_id.in_(some)))
    # SQLite gives the ids after the last that is left once more. Entries with these are not summed up by model yet.
    newest_id = sa.select(sa.func.coalesce(sa.func.max(ledger.c.entry_id), 0)).scalar_subquery()
    connection.execute(
        sa.update(retention).where(retention.c.reported_to_id > newest_id).values(reported_to_id=newest_id)
    )
    return deleted.rowcount


def find_accounts(connection: sa.Connection, month: CalendarMonth, after_account: str, most: int) -> list[str]:
    """Returns accounts of a closed month that had usage, or have statistics of its hours, in their order."""
    had_usage = sa.and_(account_closings.c.month_us == month.start_us, account_closings.c.entries > 0)
    found: set[str] = set()
    for table, is_meant in (
        (account_closings, had_usage),
        (usage_days, is_hour_in(month.start_us, month.ends_us)),
    ):
        account_id = table.c.account_id
        query = sa.select(account_id).distinct().where(is_meant, account_id > after_account)
        found.update(connection.scalars(query.order_by(account_id).limit(most)))
    return sorted(found)[:most]


def sum_up_hours(connection: sa.Connection, account_ids: Sequence[str], month: CalendarMonth) -> int:
    """Replaces the hours of accounts by one row for the month, in its first hour; of statistics, days and months
    stay. Returns how many rows of usage became fewer."""

    def is_other_hour(table: sa.Table) -> sa.ColumnElement[bool]:
        return sa.and_(table.c.account_id.in_(account_ids), _is_behind_first_hour(table, month))

    keys = [usage_hours.c[name] for name in ("account_id", "key_id", "class_id")]
    sums = [total(usage_hours.c[name]) for name in COUNTED]
    rows = connection.execute(sa.select(*keys, *sums).where(is_other_hour(usage_hours)).group_by(*keys)).all()
    delete_hours(connection, account_ids, month.start_us, month.ends_us)
    if not rows:
        return 0
    deleted = connection.execute(sa.delete(usage_hours).where(is_other_hour(usage_hours)))
    # Triggers have left its sums at zero.
    connection.execute(sa.delete(account_hours).where(is_other_hour(account_hours)))
    ADD_TO_COUNTERS.run(connection, [(*row[:3], month.start_us, *row[3:]) for row in rows])
    return deleted.rowcount - len(rows)


def _is_behind_first_hour(table: sa.Table, month: CalendarMonth) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.hour_us > month.start_us, table.c.hour_us < month.ends_us)
