"""Proves the counters, the balances and the entries of the open period in two passes over its entries.

The checks of them would sort all entries twice, and read them five times. Here one pass sums up the charges of each
counter and compares them with it; another lists the entries that are no plain charges, which are few. Where the
counters are those of the charges, they stand for them, and the balances are compared with the counters and those few.
What is not proved here is left to the checks: they decide, and write the line of a violation.
"""

from collections import defaultdict
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.metering.audit.store import checks
from services.metering.audit.store.checks import (
    ALL_ROWS,
    IS_OPEN,
    OPEN_US,
    AuditScope,
    BookRows,
    Check,
    stream,
    unequal_sums,
)
from services.metering.credit.records import BILLED, CHARGES
from services.metering.credit.store.tables import ledger, usage_hours
from services.metering.store.schema import AnyQuery
from services.rules.usage import COLUMNS

# With more entries than this that are no plain charges, they are checked in the database.
LISTED_MOST: Final = 100_000
_NO_HOUR: Final = -1
_KEYS: Final = ("account_id", "hour_us", "key_id", "class_id")
_COUNTED: Final = ("requests", *COLUMNS)

_IS_COUNTED: Final = sa.and_(
    sa.or_(*(ledger.c.kind == sa.literal_column(f"'{kind}'") for kind in CHARGES)), ledger.c.hour_us >= OPEN_US
)


def _compared_sums() -> AnyQuery:
    """Returns how many entries there are, how many counters were compared with theirs, and how many groups of entries
    differ from their counter. A group with anything unknown (NULL) differs."""
    # In the order of the counters' own key, so that those are read along it.
    entry = sa.select(
        ledger.c.account_id,
        sa.case((_IS_COUNTED, ledger.c.hour_us), else_=_NO_HOUR).label("hour_us"),
        *(ledger.c[name] for name in ("key_id", "class_id", *_COUNTED, "customer_nanos", "loss_nanos")),
    )
    entries = entry.where(IS_OPEN).subquery().c
    keys = [entries[name] for name in _KEYS]
    sums = [sa.func.sum(entries[name]).label(name) for name in (*_COUNTED, "customer_nanos", "loss_nanos")]
    groups = sa.select(*keys, sa.func.count().label("entries"), *sums).group_by(*keys).subquery()
    group, counter = groups.c, usage_hours.c
    is_equal = sa.and_(
        *(counter[name] == group[name] for name in _COUNTED),
        counter.cost_nanos + group.customer_nanos == 0,
        counter.loss_nanos + group.loss_nanos == 0,
    )
    differs = sa.case((group.hour_us == _NO_HOUR, 0), (is_equal, 0), else_=1)
    is_its_counter = sa.and_(group.hour_us != _NO_HOUR, *(counter[name] == group[name] for name in _KEYS))
    totals = sa.func.sum(group.entries), sa.func.count(counter.account_id), sa.func.sum(differs)
    query = sa.select(*(sa.func.coalesce(total, 0) for total in totals))
    return query.select_from(groups.outerjoin(usage_hours, is_its_counter))


def _other_entries() -> AnyQuery:
    """Returns the entries that are no charges counted in the period, and those whose legs do not sum to zero."""
    entry = ledger.c
    legs = entry.customer_nanos + entry.revenue_nanos + entry.loss_nanos + entry.external_nanos
    is_charge = sa.func.coalesce(entry.kind, "") == sa.literal_column("'charge'")
    columns = entry.kind, entry.request_id, entry.account_id, entry.customer_nanos
    is_counted = sa.case((_IS_COUNTED, 1), else_=0).label("is_counted")
    is_listed = sa.or_(~is_charge, entry.hour_us < OPEN_US, legs != 0)
    return sa.select(*columns, legs.label("legs_nanos"), is_counted).where(IS_OPEN, is_listed)


def _uncounted_sums(rows: BookRows) -> AnyQuery:
    """Returns account, and the excess of its balance over that of the last closing less what its counters say: the sum
    of its entries that are not counted."""
    hours = rows.usage_hours.c
    counted = sa.select(hours.account_id, sa.func.sum(hours.cost_nanos)).group_by(hours.account_id)
    both = sa.union_all(
        sa.select(rows.accounts.c.account_id, rows.accounts.c.balance_nanos.label("nanos")),
        sa.select(rows.openings.c.account_id, -rows.openings.c.balance_nanos),
        counted,
    )
    return unequal_sums(both.subquery(), "account_id")


_COMPARED_SUMS: Final = _compared_sums()
_COUNTERS: Final = sa.select(sa.func.count()).select_from(ALL_ROWS.usage_hours)
_OTHER_ENTRIES: Final = _other_entries()
_UNCOUNTED_SUMS: Final = _uncounted_sums(ALL_ROWS)


class EntryScreen(NamedTuple):
    # How many there are of this kind, without late ones; -1 if not all others are listed.
    charges: int
    # The requests that were charged late, or at a loss.
    otherwise_billed: set[str]
    # The checks that would find nothing.
    proved: frozenset[Check]
    # Whether each grant and adjustment was booked once.
    are_credits_single: bool


def screen_entries(connection: sa.Connection, scope: AuditScope) -> EntryScreen:
    others = charges = credited = 0
    are_balanced = are_listed = True
    billed: set[str] = set()
    credits: set[tuple[str, str]] = set()
    uncounted_nanos: defaultdict[str, int] = defaultdict(int)
    for entry in stream(connection, _OTHER_ENTRIES, scope.parameters):
        others += 1
        charges += entry.kind == "charge"
        credited += entry.kind not in BILLED
        are_balanced &= entry.legs_nanos == 0
        are_listed = len(billed) + len(credits) + len(uncounted_nanos) <= LISTED_MOST
        if not are_listed:
            continue
        if entry.kind not in BILLED:
            credits.add((entry.kind, entry.request_id))
        elif entry.kind != "charge":
            billed.add(entry.request_id)
        if not entry.is_counted:
            uncounted_nanos[entry.account_id] += entry.customer_nanos
    entries, compared, different = connection.execute(_COMPARED_SUMS, scope.parameters).one()
    proved: set[Check] = set()
    if are_balanced:
        proved.add(checks.unbalanced_entries)
    # Every group has its counter, and every counter has its group.
    if not different and connection.execute(_COUNTERS, scope.parameters).scalar_one() == compared:
        proved.add(checks.counters_against_ledger)
        if are_listed and _are_balances_right(connection, scope, uncounted_nanos):
            proved.add(checks.balances_against_ledger)
    all_charges = int(entries) - others + charges if are_listed else -1
    return EntryScreen(all_charges, billed, frozenset(proved), are_listed and credited == len(credits))


def _are_balances_right(connection: sa.Connection, scope: AuditScope, uncounted_nanos: dict[str, int]) -> bool:
    expected = {account_id: nanos for account_id, nanos in uncounted_nanos.items() if nanos}
    for account in stream(connection, _UNCOUNTED_SUMS, scope.parameters):
        if expected.pop(account.account_id, 0) != account.nanos:
            return False
    return not expected
