"""Recounts what accounts and keys with spend limits have spent and hold, from usage and live holds.

Counters are kept with each booking, so they only differ if a process booked that does not know them: of an older
release, or rows that were changed by hand.
"""

import operator
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.clock import read_now_us
from services.metering.ledger.months import day_start_us, month_start_us
from services.metering.ledger.spend import WHOLE_ACCOUNT, Spend, spend_id
from services.metering.store.expressions import IS_LIVE, total
from services.metering.store.sets import Lookup
from services.metering.store.spends import UPDATE_SPENDS, changed_row, read_spends_of
from services.metering.store.tables import accounts, holds, usage_hours

_LIST_LIMITED: Final = (
    sa.select(accounts.c.account_id).where(accounts.c.has_spend_limits).order_by(accounts.c.account_id)
)
_LOCK: Final = Lookup("SELECT account_id FROM accounts", "account_id", lock="FOR UPDATE")


def list_limited_accounts(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(_LIST_LIMITED))


def find_miscounted(connection: sa.Connection, account_id: str) -> list[tuple[Spend, Spend]]:
    """Returns each of the account's spends whose counters are wrong, with the right ones."""
    now_us = read_now_us(connection)
    found = read_spends_of(connection, account_id)
    subject_ids = {spend.key_id: spend.shared_spend_id or spend.spend_id for spend in found}
    counted = _count(connection, account_id, subject_ids, now_us)
    pairs = []
    for spend in found:
        if spend.shared_spend_id:
            continue
        day_nanos, month_nanos, total_nanos, held_nanos = counted[spend.spend_id]
        right = replace(
            spend.at(now_us),
            day_spent_nanos=day_nanos,
            month_spent_nanos=month_nanos,
            total_spent_nanos=total_nanos,
            held_nanos=held_nanos,
        )
        if right != spend.at(now_us):
            pairs.append((spend, right))
    return pairs


def recount(connection: sa.Connection, account_id: str) -> int:
    """Corrects the account's counters; returns how many spends had wrong ones."""
    _LOCK.run(connection, [account_id])
    pairs = find_miscounted(connection, account_id)
    if pairs:
        UPDATE_SPENDS.run(connection, [changed_row(found, right) for found, right in pairs])
    return len(pairs)


def _count(
    connection: sa.Connection, account_id: str, subject_ids: Mapping[str, str], now_us: int
) -> dict[str, list[int]]:
    """Sums up the day, the month, everything and what is held, by the spend that each key counts in."""
    cost_nanos, hour_us = usage_hours.c.cost_nanos, usage_hours.c.hour_us
    spent = (
        sa.select(
            usage_hours.c.key_id,
            total(sa.case((hour_us >= day_start_us(now_us), cost_nanos), else_=0)),
            total(sa.case((hour_us >= month_start_us(now_us), cost_nanos), else_=0)),
            total(cost_nanos),
        )
        .where(usage_hours.c.account_id == account_id)
        .group_by(usage_hours.c.key_id)
    )
    held = (
        sa.select(holds.c.key_id, total(holds.c.amount_nanos))
        .where(holds.c.account_id == account_id, IS_LIVE)
        .group_by(holds.c.key_id)
    )
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    rows: list[tuple[str, list[Any]]] = [(key_id, [*parts, 0]) for key_id, *parts in connection.execute(spent)]
    rows += [(key_id, [0, 0, 0, nanos]) for key_id, nanos in connection.execute(held)]
    for key_id, parts in rows:
        for subject_id in (spend_id(account_id, WHOLE_ACCOUNT), subject_ids.get(key_id)):
            if subject_id is not None:
                sums[subject_id] = list(map(operator.add, sums[subject_id], parts))
    return sums
