"""Lists what changed an account's balance, oldest first, with the balance after each entry.

A day's charges are one entry, after the grants and adjustments of the day. Each page is read from one snapshot, and its
balances are computed from the beginning: later bookings do not make them wrong.
"""

from typing import Final, NamedTuple

import msgspec

from services.metering.credit.records import DAY_US
from services.metering.credit.store.closings import read_opening, read_retention
from services.metering.reports.local_days import UTC_DAYS
from services.metering.statements.store.ledger_days import BEFORE_ALL, read_bookings, read_day_sums, sum_bookings
from services.metering.store import Connection

# Above every time.
_NO_END: Final = 2**63 - 1
# Sorts before all ledger entries of the same time.
_NO_ENTRY: Final = -1


class CreditPosition(NamedTuple):
    """The position of an entry in the list of an account."""

    at_us: int
    entry_id: int


BEGINNING: Final = CreditPosition(*BEFORE_ALL)


class CreditEntry(msgspec.Struct):
    # That of an entry, or "charges".
    kind: str
    # For charges, the start of their day.
    at_us: int
    amount_nanos: int
    balance_nanos: int
    booking_id: str = ""
    reason: str = ""


class CreditPage(NamedTuple):
    entries: list[CreditEntry]
    # The position after which the next page begins; None on the last.
    next_after: CreditPosition | None


def read_page(connection: Connection, account_id: str, after: CreditPosition, size: int) -> CreditPage:
    # It has what was credited, and charged, before entries were pruned.
    opening = read_opening(connection, account_id, read_retention(connection).ledger_pruned_before_us)
    period = account_id, opening.at_us, _NO_END
    balance_nanos = opening.account.balance_nanos + sum_bookings(connection, *period, after)
    changes: list[tuple[CreditPosition, CreditEntry]] = []
    for entry_id, entry, _ in read_bookings(connection, *period, size + 1, after):
        at_us, amount_nanos = entry.recorded_at_us, entry.customer_nanos
        change = CreditEntry(entry.kind, at_us, amount_nanos, 0, entry.request_id, entry.reason or "")
        changes.append((CreditPosition(at_us, entry_id), change))
    for day in read_day_sums(connection, *period, UTC_DAYS.offsets):
        position = CreditPosition(day.local_us + DAY_US, _NO_ENTRY)
        if position <= after:
            balance_nanos -= day.charged_nanos
        elif day.charged_nanos:
            changes.append((position, CreditEntry("charges", day.local_us, -day.charged_nanos, 0)))
    changes.sort(key=lambda change: change[0])
    for _, change in changes:
        balance_nanos = change.balance_nanos = balance_nanos + change.amount_nanos
    return CreditPage([change for _, change in changes[:size]], changes[size - 1][0] if len(changes) > size else None)
