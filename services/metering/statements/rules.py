"""Lists an account's ledger with the balance after each entry, and the receipts of its requests.

Pages are parts of one list, whatever is booked meanwhile: ledgers only grow at their end, and the token of a page has
the id and the balance at which the next one begins. So a page costs the same wherever it is.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.records import HOUR_US
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.closings import read_opening, read_retention
from services.metering.reports.local_days import find_local_days, require_hours
from services.metering.statements.store import entries as store
from services.metering.statements.store import ledger_days
from services.metering.statements.store.entries import Receipt, RequestFilter, StatementEntry
from services.metering.statements.store.ledger_days import DaySums
from services.metering.store import Connection

# More than an account runs at once.
RUNNING_MOST: Final = 1_000
# So many entries are searched for a page of requests that are chosen.
SEARCHED_MOST: Final = 5_000
BOOKINGS_MOST: Final = 1_000
# Above every id and every time.
_NO_END: Final = 2**63 - 1


class PagePosition(NamedTuple):
    """The place where a page begins, as a token carries it."""

    # Oldest first: the last entry of the previous page. Newest first: one less than it.
    entry_id: int
    # The last entry of the list, oldest first; newest first: the one before the list's oldest.
    limit_id: int
    # After the entry above.
    balance_nanos: int


class StatementQuery(msgspec.Struct, frozen=True):
    account_id: str
    start_us: int | None
    # Exclusive.
    end_us: int | None
    newest_first: bool
    size: int
    # None: the first page.
    position: PagePosition | None
    # Of requests only.
    chosen: RequestFilter = RequestFilter()


class StatementDay(NamedTuple):
    start_us: int
    sums: DaySums
    # At the end of the day.
    balance_nanos: int


class StatementDays(NamedTuple):
    opening_nanos: int
    days: list[StatementDay]
    bookings: list[StatementEntry]


class StatementPage(NamedTuple):
    entries: list[StatementEntry]
    # None on the last page.
    next_position: PagePosition | None


class RequestsPage(NamedTuple):
    running: list[Receipt]
    charged: list[Receipt]
    next_position: PagePosition | None


def read_entry_page(connection: Connection, query: StatementQuery) -> StatementPage:
    position = query.position or _first_position(connection, query)
    found = store.read_entries(
        connection,
        query.account_id,
        *_range(position, newest_first=query.newest_first),
        newest_first=query.newest_first,
        most=query.size + 1,
    )
    balance_nanos, entries = position.balance_nanos, []
    for listed in found[: query.size]:
        amount_nanos = listed.entry.customer_nanos
        after_nanos = balance_nanos if query.newest_first else balance_nanos + amount_nanos
        balance_nanos = balance_nanos - amount_nanos if query.newest_first else after_nanos
        entries.append(listed._replace(balance_nanos=after_nanos))
    ids = [listed.entry_id for listed in found]
    return StatementPage(entries, _next_position(position, ids, query, balance_nanos))


def read_days(connection: Connection, account_id: str, start_us: int, end_us: int, time_zone: str) -> StatementDays:
    """Lists the days of a period that have an entry, the oldest first, and its grants and adjustments."""
    require_hours(start_us, end_us)
    days = find_local_days(time_zone, start_us, end_us)
    _refuse_pruned(start_us, read_retention(connection).ledger_pruned_before_us, "start_time")
    opening_nanos = balance_nanos = ledger_days.read_opening_balance(connection, account_id, start_us)
    listed = []
    for sums in ledger_days.read_day_sums(connection, account_id, start_us, end_us, days.offsets):
        balance_nanos += sums.credited_nanos - sums.charged_nanos
        # The first day can begin before the period.
        listed.append(StatementDay(max(start_us, days.start_us(sums.local_us)), sums, balance_nanos))
    booked = ledger_days.read_bookings(connection, account_id, start_us, end_us, BOOKINGS_MOST)
    return StatementDays(opening_nanos, listed, booked)


def read_request_page(connection: Connection, query: StatementQuery) -> RequestsPage:
    """Lists requests, the newest first; those that run are on the first page. Of requests that are chosen, only some
    entries are searched for a page, and hours without such a request are skipped, so that a key that was last used long
    ago is found at once."""
    position, running, chosen = query.position, [], query.chosen
    if position is None:
        first_id, last_id = _period(connection, query)
        running = store.read_running(connection, query.account_id, query.start_us, query.end_us, RUNNING_MOST, chosen)
        position = PagePosition(last_id, first_id, 0)
        if any(chosen):
            at_us = _NO_END if query.end_us is None else query.end_us
            position = _skip_unused(connection, query, position, at_us)
    if position is None:
        return RequestsPage(running, [], None)
    after_id, last_id = _range(position, newest_first=True)
    from_id, searched_us, search = after_id, 0, (query.account_id, after_id, last_id, SEARCHED_MOST)
    if any(chosen) and (searched := store.find_searched(connection, *search)) is not None:
        # Including the entry at which the search ends.
        from_id, searched_us = searched.entry_id - 1, searched.recorded_at_us
    found = store.read_charged(connection, query.account_id, from_id, last_id, query.size + 1, chosen)
    charged = [receipt for _, receipt in found[: query.size]]
    next_position = _next_position(position, [entry_id for entry_id, _ in found], query, 0)
    if next_position is None and from_id > after_id:
        rest = PagePosition(from_id, position.limit_id, 0)
        next_position = _skip_unused(connection, query, rest, searched_us + store.CLOCK_STEP_US)
    return RequestsPage(running, charged, next_position)


def _skip_unused(
    connection: Connection, query: StatementQuery, position: PagePosition, at_us: int
) -> PagePosition | None:
    """Returns the position of the last entry that can be a chosen request's; None if there is none left."""
    hour_us = store.find_last_use(connection, query.account_id, at_us, query.chosen)
    if hour_us is None:
        return None
    ends_us = hour_us + HOUR_US + store.CLOCK_STEP_US
    last_id = min(position.entry_id, store.find_last_of_account(connection, query.account_id, ends_us))
    return PagePosition(last_id, position.limit_id, 0) if last_id > position.limit_id else None


def _first_position(connection: Connection, query: StatementQuery) -> PagePosition:
    first_id, last_id = _period(connection, query)
    begins_at_us = query.end_us if query.newest_first else query.start_us
    began_id = last_id if query.newest_first else first_id
    if begins_at_us is not None:
        balance_nanos = store.read_balance_after(connection, query.account_id, began_id, begins_at_us)
    elif query.newest_first:
        [account] = read_balances(connection, [query.account_id])
        balance_nanos = account.balance_nanos
    else:
        pruned_before_us = read_retention(connection).ledger_pruned_before_us
        balance_nanos = read_opening(connection, query.account_id, pruned_before_us).account.balance_nanos
    return PagePosition(began_id, first_id if query.newest_first else last_id, balance_nanos)


def _period(connection: Connection, query: StatementQuery) -> tuple[int, int]:
    """Returns the id before the period's first entry, and the id of its last."""
    first_id, last_id = 0, _NO_END
    pruned_before_us = read_retention(connection).ledger_pruned_before_us
    if pruned_before_us:
        for asked_us, param in ((query.start_us, "start_time"), (query.end_us, "end_time")):
            _refuse_pruned(asked_us, pruned_before_us, param)
        first_id = store.find_last_of_account(connection, query.account_id, pruned_before_us)
    if query.start_us is not None:
        first_id = store.find_last_of_account(connection, query.account_id, query.start_us)
    if query.end_us is not None:
        last_id = store.find_last_of_account(connection, query.account_id, query.end_us)
    return first_id, last_id


def _refuse_pruned(asked_us: int | None, pruned_before_us: int, param: str) -> None:
    if asked_us is not None and asked_us < pruned_before_us:
        begins = datetime.fromtimestamp(pruned_before_us // 1_000_000, UTC)
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("entries_not_kept", day=f"{begins:%Y-%m-%d}"), param=param)


def _range(position: PagePosition, *, newest_first: bool) -> tuple[int, int]:
    """Returns the ids after which, and up to which, the rest of the list is."""
    return (position.limit_id, position.entry_id) if newest_first else (position.entry_id, position.limit_id)


def _next_position(
    position: PagePosition, ids: Sequence[int], query: StatementQuery, balance_nanos: int
) -> PagePosition | None:
    """Returns the position after a page; `ids` has one more than the page if there is another."""
    if len(ids) <= query.size:
        return None
    last_id = ids[query.size - 1]
    return PagePosition(last_id - 1 if query.newest_first else last_id, position.limit_id, balance_nanos)
