"""Verifies closed months: the chain of their closings, the accounts of the last one, and the entries of one."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.calendar import CalendarMonth
from services.metering.credit.ledger.closings import (
    AccountsDigest,
    Closing,
    EntriesDigest,
    chain_violations,
    close_account,
)
from services.metering.credit.store import closings as store
from services.metering.credit.store.closings import LEDGER_COLUMNS
from services.metering.store import Connection

ROWS_AT_ONCE: Final = 1_000


class ClosedMonths(NamedTuple):
    closings: list[Closing]
    # Entries from before it are not in the database any more.
    pruned_before_us: int


def find_chain_violations(connection: Connection) -> Iterator[str]:
    """Yields what is wrong with the closings, whose number is that of the months, and with the accounts of the last."""
    closings = store.read_closings(connection)
    yield from chain_violations(closings)
    if closings:
        yield from _account_violations(connection, closings[-1])


def find_month_violations(connection: Connection, month: CalendarMonth) -> Iterator[str]:
    """Yields where the entries and the accounts of a closed month differ from its closing."""
    closing = store.read_closing(connection, month)
    if closing is None:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("month_not_closed", month=str(month)), param="month")
    if month.start_us < store.read_retention(connection).ledger_pruned_before_us:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("month_pruned", month=str(month)), param="month")
    entries = store.find_entries(connection, month)
    digest = EntriesDigest(LEDGER_COLUMNS)
    rest = entries
    while rows := store.read_month_entries(connection, rest, ROWS_AT_ONCE):
        digest.add(rows)
        rest = rest._replace(after_id=rows[-1][0])
    yield from entry_violations(closing, digest)
    yield from _account_violations(connection, closing)
    previous = {each.account_id: each for each in store.read_account_closings(connection, month.previous.start_us)}
    sums = {each.account_id: each for each in store.sum_by_account(connection, entries)}
    for account in store.read_account_closings(connection, month.start_us):
        account_id = account.account_id
        if account != close_account(month, account_id, previous.pop(account_id, None), sums.pop(account_id, None)):
            yield f"closing of {month}, account {account_id}: differs from its entries"
    for account_id in sorted(previous.keys() | sums.keys()):
        yield f"closing of {month}, account {account_id}: is missing"


def entry_violations(closing: Closing, entries: EntriesDigest) -> Iterator[str]:
    """Yields where entries, from the ledger or from an archive, differ from the closing of their month."""
    if entries.entries != closing.entries:
        yield f"closing of {closing.month}: of {closing.entries} entries, {entries.entries} were found"
    elif entries.hexdigest() != closing.entries_hash:
        yield f"closing of {closing.month}: its entries have changed since it was made"


def _account_violations(connection: Connection, closing: Closing) -> Iterator[str]:
    digest = AccountsDigest()
    for account in store.read_account_closings(connection, closing.month_us):
        digest.add(account)
    found = (digest.accounts, digest.balance_nanos, digest.hexdigest())
    if found != (closing.accounts, closing.balance_nanos, closing.accounts_hash):
        yield f"closing of {closing.month}: its accounts have changed since it was made"


def read_closed(connection: Connection) -> ClosedMonths:
    return ClosedMonths(store.read_closings(connection), store.read_retention(connection).ledger_pruned_before_us)


async def audit_months(database: Database, month: CalendarMonth | None) -> list[str]:
    """Verifies the entries of one month, or of all that are in the database, each from its own snapshot."""
    closed = await database.read(read_closed)
    months = [closing.month for closing in closed.closings if closing.month_us >= closed.pruned_before_us]
    found: list[str] = []
    for each in months if month is None else [month]:
        found += await database.read(lambda connection, each=each: list(find_month_violations(connection, each)))  # type: ignore[misc]
    return found
