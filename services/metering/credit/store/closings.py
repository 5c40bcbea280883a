"""Reads and writes closings of months, and the rows that they are made of."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import astuple

from services.metering.credit.calendar import CalendarMonth, month_of
from services.metering.credit.ledger.closings import AccountClosing, Closing, EntryRow, RetentionState
from services.metering.credit.records import CHARGES, DAY_US
from services.metering.credit.store.tables import account_closings, closings, ledger, retention
from services.metering.store.schema import total
from services.metering.store.sets import insert_rows

# Ids and times of entries have the same order but for this: transactions that overlap, and clocks that were set.
DISORDER_US: Final = DAY_US
LEDGER_COLUMNS: Final = tuple(column.name for column in ledger.c)

_LAST_CLOSING: Final = sa.select(closings).order_by(closings.c.month_us.desc()).limit(1)
_INSERT_ACCOUNTS: Final = insert_rows(account_closings, AccountClosing.__struct_fields__)
_INSERT_CLOSING: Final = insert_rows(closings, Closing.__struct_fields__)


class OpenPeriod(NamedTuple):
    """The time that no closing covers yet."""

    # The last closed month; None: there is none.
    closing: Closing | None
    # All of its entries have higher ids; an index leads to them.
    after_id: int

    @property
    def start_us(self) -> int:
        return 0 if self.closing is None else self.closing.ends_us

    @property
    def closed_month_us(self) -> int:
        return -1 if self.closing is None else self.closing.month_us


def find_last_before(connection: sa.Connection, at_us: int, *its_own: sa.ColumnElement[bool]) -> int:
    """Returns an id: of some entries, those up to it were recorded before a time, and later ones not. Where the
    database's clock was set back meanwhile, a time still divides the entries at one place."""
    newest = connection.scalar(sa.select(sa.func.max(ledger.c.entry_id)).where(*its_own)) or 0
    is_tried = ledger.c.entry_id <= sa.bindparam("tried_id", type_=sa.BigInteger)
    query = sa.select(ledger.c.recorded_at_us).where(*its_own, is_tried).order_by(ledger.c.entry_id.desc()).limit(1)
    last_id = 0
    for bit in reversed(range(newest.bit_length())):
        tried_id = last_id + (1 << bit)
        recorded_at_us = connection.scalar(query, {"tried_id": tried_id})
        if recorded_at_us is None or recorded_at_us < at_us:
            last_id = tried_id
    return last_id


def find_last_id_before(connection: sa.Connection, at_us: int) -> int:
    """Returns an id: all entries that were recorded from a time on have higher ones."""
    return find_last_before(connection, at_us - DISORDER_US)


def read_open_period(connection: sa.Connection) -> OpenPeriod:
    closing = read_last_closing(connection)
    return OpenPeriod(closing, 0 if closing is None else find_last_id_before(connection, closing.ends_us))


def read_last_closing(connection: sa.Connection) -> Closing | None:
    row = connection.execute(_LAST_CLOSING).one_or_none()
    return None if row is None else Closing(*row)


def read_closings(connection: sa.Connection) -> list[Closing]:
    """Returns all of them, the oldest first."""
    return [Closing(*row) for row in connection.execute(sa.select(closings).order_by(closings.c.month_us))]


def read_closing(connection: sa.Connection, month: CalendarMonth) -> Closing | None:
    row = connection.execute(sa.select(closings).where(closings.c.month_us == month.start_us)).one_or_none()
    return None if row is None else Closing(*row)


def find_next_month(connection: sa.Connection) -> CalendarMonth | None:
    """Returns the month to be closed next: that after the last closed one, or that of the first entry."""
    closing = read_last_closing(connection)
    if closing is not None:
        return closing.month.next
    query = sa.select(ledger.c.recorded_at_us).order_by(ledger.c.entry_id).limit(1)
    recorded_at_us = connection.scalar(query)
    # Before the first entry by its id there may be some by their times.
    return None if recorded_at_us is None else month_of(recorded_at_us - DISORDER_US)


class EntryRange(NamedTuple):
    """The entries of a month: those of its times among a range of ids, which an index leads to."""

    month: CalendarMonth
    after_id: int
    last_id: int


def find_entries(connection: sa.Connection, month: CalendarMonth) -> EntryRange:
    last_id = find_last_id_before(connection, month.ends_us + 2 * DISORDER_US)
    return EntryRange(month, find_last_id_before(connection, month.start_us), last_id)


def _is_in(entries: EntryRange) -> list[sa.ColumnElement[bool]]:
    return [
        ledger.c.entry_id > entries.after_id,
        ledger.c.entry_id <= entries.last_id,
        ledger.c.recorded_at_us >= entries.month.start_us,
        ledger.c.recorded_at_us < entries.month.ends_us,
    ]


def read_month_entries(connection: sa.Connection, entries: EntryRange, most: int) -> list[EntryRow]:
    """Returns the first rows of the table, in the order of their ids."""
    if connection.dialect.name == "postgresql":
        # A new partition has no statistics yet: each portion would be searched for in all of it.
        names = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
        connection.exec_driver_sql("SELECT " + ", ".join(f"set_config('{name}', 'off', true)" for name in names))
    query = sa.select(ledger).where(*_is_in(entries)).order_by(ledger.c.entry_id).limit(most)
    return [tuple(row) for row in connection.execute(query)]


def sum_by_account(connection: sa.Connection, entries: EntryRange) -> Iterator[AccountClosing]:
    """Returns the sums of a month alone."""
    kind, nanos = ledger.c.kind, ledger.c.customer_nanos
    is_charge = kind.in_(CHARGES)
    sums = (
        sa.func.count(),
        total(sa.case((kind == "grant", nanos), else_=0)),
        total(sa.case((kind == "adjustment", nanos), else_=0)),
        total(sa.case((is_charge, -nanos), else_=0)),
        total(-ledger.c.loss_nanos),
        total(sa.case((is_charge, ledger.c.requests), else_=0)),
        *(
            total(sa.case((is_charge, ledger.c[name]), else_=0))
            for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
        ),
    )
    query = sa.select(ledger.c.account_id, *sums).where(*_is_in(entries)).group_by(ledger.c.account_id)
    return (AccountClosing(entries.month.start_us, *row) for row in connection.execute(query))


def read_account_ids(connection: sa.Connection, month_us: int) -> set[str]:
    """Returns the ids of a month's accounts."""
    return set(
        connection.scalars(sa.select(account_closings.c.account_id).where(account_closings.c.month_us == month_us))
    )


def read_account_closings(
    connection: sa.Connection, month_us: int, account_ids: Sequence[str] | None = None
) -> Iterator[AccountClosing]:
    """Returns the accounts of a month, or some of them, in the order of their ids, by their bytes."""
    query = sa.select(account_closings).where(account_closings.c.month_us == month_us)
    if account_ids is not None:
        query = query.where(account_closings.c.account_id.in_(account_ids))
    query = query.order_by(_by_bytes(connection)).execution_options(yield_per=1000)
    return (AccountClosing(*row) for row in connection.execute(query))


class OpeningBalance(NamedTuple):
    """An account at the end of a closed month, or before everything."""

    # Entries recorded from here on are not included.
    at_us: int
    account: AccountClosing


def read_opening(connection: sa.Connection, account_id: str, at_us: int) -> OpeningBalance:
    """Returns an account at the end of the last closed month that ends at a time or before."""
    query = sa.select(closings.c.month_us, closings.c.ends_us).where(closings.c.ends_us <= at_us)
    closed = connection.execute(query.order_by(closings.c.month_us.desc()).limit(1)).one_or_none()
    if closed is None:
        return OpeningBalance(0, AccountClosing(0, account_id))
    month_us, ends_us = closed
    its_own = (account_closings.c.month_us == month_us, account_closings.c.account_id == account_id)
    row = connection.execute(sa.select(account_closings).where(*its_own)).one_or_none()
    return OpeningBalance(ends_us, AccountClosing(month_us, account_id) if row is None else AccountClosing(*row))


def delete_drafts(connection: sa.Connection, month: CalendarMonth, most: int) -> int:
    """Deletes accounts of a month whose closing was interrupted; returns how many."""
    account_id = account_closings.c.account_id
    is_of_month = account_closings.c.month_us == month.start_us
    some = sa.select(account_id).where(is_of_month).limit(most)
    deleted = connection.execute(sa.delete(account_closings).where(is_of_month, account_id.in_(some)))
    return deleted.rowcount


def write_drafts(connection: sa.Connection, accounts: Sequence[AccountClosing]) -> None:
    _INSERT_ACCOUNTS.run(connection, [astuple(account) for account in accounts])


class ClosingConflict(Exception):
    """Another process closed the month, or a part of what was closed is missing: nothing is written."""


def write_closing(connection: sa.Connection, closing: Closing) -> None:
    """Closes a month whose accounts have been written."""
    previous = read_last_closing(connection)
    number = sa.select(sa.func.count()).where(account_closings.c.month_us == closing.month_us)
    follows = previous is None or (previous.ends_us, previous.closing_hash) == (closing.month_us, closing.previous_hash)
    if not follows or connection.scalar(number) != closing.accounts:
        raise ClosingConflict
    _INSERT_CLOSING.run(connection, [astuple(closing)])


_RETENTION: Final = sa.select(*(retention.c[name] for name in RetentionState._fields))


def read_retention(connection: sa.Connection) -> RetentionState:
    [row] = connection.execute(_RETENTION).all()
    return RetentionState(*row)


def _by_bytes(connection: sa.Connection) -> sa.ColumnElement[str]:
    """Returns the account's id as SQLite compares it; PostgreSQL would by the words of a language."""
    account_id = account_closings.c.account_id
    return sa.collate(account_id, "C") if connection.dialect.name == "postgresql" else account_id
