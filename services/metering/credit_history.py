"""Lists what changed an account's balance, oldest first, with the balance after each entry.

A day's charges are one entry, after the grants and adjustments of the day. Each page is read from one snapshot, and its
balances are computed from the beginning: later bookings do not make them wrong.
"""

import heapq
from typing import Final, Literal, NamedTuple

import msgspec

from services.chassis.database.database import Database
from services.metering.ledger.records import DAY_US
from services.metering.store.credits import CreditPosition, StoredCredit, read_charges_by_day, read_credits

BEGINNING: Final = CreditPosition(-1, -1)
# Sorts before all ledger entries of the same time.
_NO_ENTRY: Final = -1


class CreditEntry(msgspec.Struct, frozen=True):
    kind: Literal["grant", "adjustment", "charges"]
    # For charges, the start of their day.
    at_us: int
    amount_nanos: int
    balance_nanos: int
    booking_id: str = ""
    reason: str = ""


class CreditPage(msgspec.Struct, frozen=True):
    entries: list[CreditEntry]
    # The position after which the next page begins; None on the last.
    next_after: CreditPosition | None


class _Change(NamedTuple):
    position: CreditPosition
    day_us: int
    amount_nanos: int
    credit: StoredCredit | None


async def list_credits(database: Database, account_id: str, after: CreditPosition, size: int) -> CreditPage:
    (balance_nanos, credits), charged = await database.read(
        lambda connection: (
            read_credits(connection, account_id, after, size + 1),
            read_charges_by_day(connection, account_id),
        )
    )
    charges = []
    for day_us, charged_nanos in charged.items():
        position = CreditPosition(day_us + DAY_US, _NO_ENTRY)
        if position <= after:
            balance_nanos -= charged_nanos
        else:
            charges.append(_Change(position, day_us, -charged_nanos, None))
    booked = [_Change(credit.position, 0, credit.entry.customer_nanos, credit) for credit in credits]
    changes = list(heapq.merge(booked, charges, key=lambda change: change.position))
    entries = []
    for change in changes[:size]:
        balance_nanos += change.amount_nanos
        entries.append(_entry(change, balance_nanos))
    return CreditPage(entries, changes[size - 1].position if len(changes) > size else None)


def _entry(change: _Change, balance_nanos: int) -> CreditEntry:
    if change.credit is None:
        return CreditEntry("charges", change.day_us, change.amount_nanos, balance_nanos)
    entry = change.credit.entry
    kind: Literal["grant", "adjustment"] = "grant" if entry.kind == "grant" else "adjustment"
    at_us, reason = entry.recorded_at_us, entry.reason or ""
    return CreditEntry(kind, at_us, change.amount_nanos, balance_nanos, entry.request_id, reason)
