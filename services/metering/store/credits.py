"""Reads what changed an account's balance: grants and adjustments one by one, charges by day."""

from typing import Final, NamedTuple

import sqlalchemy as sa

from services.metering.ledger.records import DAY_US, Entry
from services.metering.store.expressions import IS_LATE, IS_RARE, total
from services.metering.store.retention.closings import OpeningBalance, read_opening, read_retention
from services.metering.store.tables import account_hours, ledger

_IS_CREDIT: Final = sa.and_(IS_RARE, ledger.c.kind.in_(["grant", "adjustment"]))
_ORDER: Final = (ledger.c.recorded_at_us, ledger.c.entry_id)


class CreditPosition(NamedTuple):
    """The position of an entry in the list of an account."""

    at_us: int
    entry_id: int


class StoredCredit(NamedTuple):
    position: CreditPosition
    entry: Entry


def read_pruned(connection: sa.Connection, account_id: str) -> OpeningBalance:
    """Returns the account at the time before which its entries are not in the database any more."""
    return read_opening(connection, account_id, read_retention(connection).ledger_pruned_before_us)


def read_credits(
    connection: sa.Connection, account_id: str, after: CreditPosition, most: int
) -> tuple[int, list[StoredCredit]]:
    """Returns grants and adjustments: the sum of those up to a position, and the first after it, oldest first. The sum
    starts with what was credited, and charged, before entries were pruned."""
    pruned = read_pruned(connection, account_id)
    is_its_own = sa.and_(_IS_CREDIT, ledger.c.account_id == account_id, ledger.c.recorded_at_us >= pruned.at_us)
    is_after = sa.tuple_(*_ORDER) > sa.tuple_(*after)
    before = sa.select(total(ledger.c.customer_nanos)).where(is_its_own, sa.not_(is_after))
    before_nanos: int = connection.execute(before).scalar_one()
    before_nanos += pruned.account.balance_nanos
    query = sa.select(ledger).where(is_its_own, is_after).order_by(*_ORDER).limit(most)
    found = [
        StoredCredit(CreditPosition(row.recorded_at_us, row.entry_id), Entry(*row[1:]))
        for row in connection.execute(query)
    ]
    return before_nanos, found


def read_charges_by_day(connection: sa.Connection, account_id: str) -> dict[int, int]:
    """Returns the charges by the start of the day on which they were recorded, oldest first.

    The hourly counters have the sums. They include a later charge of a request in the hour of its first one; such late
    charges are few, and are moved to their own day."""
    hour_us, pruned_us = account_hours.c.hour_us, read_pruned(connection, account_id).at_us
    hours = (
        sa.select((hour_us - hour_us % DAY_US).label("day_us"), total(account_hours.c.cost_nanos))
        .where(account_hours.c.account_id == account_id, hour_us >= pruned_us)
        .group_by(sa.text("1"))
    )
    counted_us, recorded_us = ledger.c.hour_us, ledger.c.recorded_at_us
    late = (
        sa.select(
            (counted_us - counted_us % DAY_US).label("counted_day_us"),
            (recorded_us - recorded_us % DAY_US).label("recorded_day_us"),
            total(-ledger.c.customer_nanos),
        )
        .where(IS_LATE, ledger.c.account_id == account_id, ledger.c.recorded_at_us >= pruned_us)
        .group_by(sa.text("1"), sa.text("2"))
    )
    charged: dict[int, int] = {row[0]: row[1] for row in connection.execute(hours)}
    for counted_day_us, recorded_day_us, nanos in connection.execute(late):
        if counted_day_us >= pruned_us:
            charged[counted_day_us] -= nanos
        charged[recorded_day_us] = charged.get(recorded_day_us, 0) + nanos
    return {day_us: charged[day_us] for day_us in sorted(charged) if charged[day_us]}
