"""Reads, writes and recounts what accounts and keys with spend limits have spent. Callers lock their accounts."""

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from msgspec.structs import astuple, replace

from services.chassis.database.clock import read_now_us
from services.metering.credit.calendar import day_start_us, month_start_us, next_day_us, next_month_us
from services.metering.credit.ledger.holds import charged_hour_us
from services.metering.credit.ledger.spend import (
    WHOLE_ACCOUNT,
    InheritSpendLimits,
    PastPeriod,
    SetSpendLimits,
    Spend,
    past_periods,
    spend_id,
)
from services.metering.credit.records import AccountBalance, Hold, Operation, RequestOperation, Reserve, Settle
from services.metering.credit.store.tables import IS_LIVE, accounts, holds, spends, usage_hours
from services.metering.store.schema import total
from services.metering.store.sets import Lookup, Row, insert_rows, select_all, update_rows

# Of an account, if no keys are named.
LISTED_MOST: Final = 10_000
# Of the keys of an account whose limits are reached.
REACHED_MOST: Final = 100

_READ: Final = Lookup(select_all(spends), "spend_id")
_LIST: Final = (
    sa.select(spends)
    .where(spends.c.account_id == sa.bindparam("account_id"))
    .order_by(spends.c.key_id)
    .limit(sa.bindparam("most"))
)
_LEAST: Final = sa.bindparam("least_nanos", type_=sa.BigInteger)
_REACHED: Final = (
    sa.select(spends)
    .where(
        spends.c.account_id == sa.bindparam("account_id"),
        sa.or_(
            spends.c.key_id == WHOLE_ACCOUNT,
            spends.c.day_limit_nanos <= _LEAST,
            spends.c.month_limit_nanos <= _LEAST,
            spends.c.total_spent_nanos >= spends.c.total_limit_nanos - _LEAST,
            # What earlier days and months have spent is over.
            sa.and_(
                spends.c.day_us >= sa.bindparam("day_us"),
                spends.c.day_spent_nanos >= spends.c.day_limit_nanos - _LEAST,
            ),
            sa.and_(
                spends.c.month_us >= sa.bindparam("month_us"),
                spends.c.month_spent_nanos >= spends.c.month_limit_nanos - _LEAST,
            ),
        ),
    )
    .order_by(spends.c.key_id)
    .limit(REACHED_MOST + 1)
)
_SHARING: Final = sa.select(spends).where(
    spends.c.account_id == sa.bindparam("account_id"),
    spends.c.shared_spend_id.in_(sa.bindparam("shared_ids", expanding=True)),
    # As the index has it.
    spends.c.shared_spend_id != "",
)
_READ_OF_ACCOUNTS: Final = Lookup(select_all(spends), "account_id")
INSERT_SPENDS: Final = insert_rows(spends, Spend.__struct_fields__)
_CHANGES: Final = tuple(name for name in Spend.__struct_fields__ if name not in ("spend_id", "account_id", "key_id"))
_COUNTERS: Final = ("day_spent_nanos", "month_spent_nanos", "total_spent_nanos", "held_nanos")
_GUARDS: Final = ("total_spent_nanos", "held_nanos")
UPDATE_SPENDS: Final = update_rows(spends, "spend_id", _CHANGES, found=_GUARDS)
_LIST_LIMITED: Final = (
    sa.select(accounts.c.account_id).where(accounts.c.has_spend_limits).order_by(accounts.c.account_id)
)
_LOCK: Final = Lookup("SELECT account_id FROM accounts", "account_id", lock="FOR UPDATE")


def read_spends(
    connection: sa.Connection,
    operations: Sequence[Operation[object]],
    found_accounts: Iterable[AccountBalance],
    found_holds: Iterable[Hold],
) -> list[Spend]:
    """Reads those of the accounts and keys that the operations are about."""
    limited_ids = {account.account_id for account in found_accounts if account.has_spend_limits}
    if not limited_ids:
        return []
    whole_ids = {operation.account_id for operation in operations if isinstance(operation, SetSpendLimits)}
    key_ids = {hold.request_id: hold.key_id for hold in found_holds}
    wanted_ids: set[str] = set()
    for operation in operations:
        if isinstance(operation, RequestOperation) and operation.account_id in limited_ids:
            key_id = operation.key_id if isinstance(operation, Reserve) else key_ids.get(operation.request_id, "")
            wanted_ids |= {spend_id(operation.account_id, each) for each in (WHOLE_ACCOUNT, key_id)}
    rows = dict.fromkeys(_READ.run(connection, wanted_ids)) if wanted_ids else {}
    if whole_ids:
        # A lower limit of an account lowers those of its keys.
        rows |= dict.fromkeys(_READ_OF_ACCOUNTS.run(connection, whole_ids))
    found = {spend.spend_id: spend for spend in (Spend(*row) for row in rows)}
    return [*found.values(), *_read_shared(connection, found)]


def _read_shared(connection: sa.Connection, found: Mapping[str, Spend]) -> list[Spend]:
    """Reads the spends that keys share which have replaced others, as far as they are not known."""
    shared_ids = {spend.shared_spend_id for spend in found.values()} - {"", *found}
    return [Spend(*row) for row in _READ.run(connection, shared_ids)] if shared_ids else []


def read_new_spends(
    connection: sa.Connection, operations: Iterable[Operation[object]], found: Iterable[Spend], now_us: int
) -> list[Spend]:
    """Sums up what accounts and keys have spent that get their first limits."""
    found_ids = {spend.spend_id for spend in found}
    subjects: defaultdict[str, dict[str, Spend]] = defaultdict(dict)
    for operation in operations:
        if isinstance(operation, SetSpendLimits):
            new = Spend(spend_id(operation.account_id, operation.key_id), operation.account_id, operation.key_id)
            if new.spend_id not in found_ids:
                subjects[new.account_id][new.key_id] = new
    return [
        spend
        for account_id, of_account in sorted(subjects.items())
        for spend in _counted(connection, account_id, of_account.values(), now_us)
    ]


def _counted(connection: sa.Connection, account_id: str, found: Collection[Spend], now_us: int) -> list[Spend]:
    """Returns spends of an account with the counters that usage and live holds tell, but for those that share
    another's: what their keys spend counts in that."""
    subject_ids = {spend.key_id: spend.shared_spend_id or spend.spend_id for spend in found}
    cost_nanos, hour_us = usage_hours.c.cost_nanos, usage_hours.c.hour_us
    since_us = (day_start_us(now_us), month_start_us(now_us), 0)
    spent = (
        sa.select(usage_hours.c.key_id, *(total(sa.case((hour_us >= each, cost_nanos), else_=0)) for each in since_us))
        .where(usage_hours.c.account_id == account_id)
        .group_by(usage_hours.c.key_id)
    )
    held = (
        sa.select(holds.c.key_id, total(holds.c.amount_nanos))
        .where(holds.c.account_id == account_id, IS_LIVE)
        .group_by(holds.c.key_id)
    )
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_COUNTERS))
    rows: list[tuple[str, list[int]]] = [(key_id, [*parts, 0]) for key_id, *parts in connection.execute(spent)]
    rows += [(key_id, [0, 0, 0, nanos]) for key_id, nanos in connection.execute(held)]
    for key_id, parts in rows:
        for subject_id in (spend_id(account_id, WHOLE_ACCOUNT), subject_ids.get(key_id)):
            if subject_id is not None:
                sums[subject_id] = list(map(operator.add, sums[subject_id], parts))
    return [
        replace(spend.at(now_us), **dict(zip(_COUNTERS, sums[spend.spend_id], strict=True)))
        for spend in found
        if not spend.shared_spend_id
    ]


def find_miscounted(connection: sa.Connection, account_id: str) -> list[tuple[Spend, Spend]]:
    """Returns each of the account's spends whose counters are wrong, with the right ones. Counters are kept with each
    booking, so they only differ if a process booked that does not know them: of an older release, or rows that were
    changed by hand."""
    now_us = read_now_us(connection)
    found = {
        spend.spend_id: spend for spend in (Spend(*row) for row in _READ_OF_ACCOUNTS.run(connection, [account_id]))
    }
    pairs = [(found[right.spend_id], right) for right in _counted(connection, account_id, found.values(), now_us)]
    return [(spend, right) for spend, right in pairs if right != spend.at(now_us)]


def recount(connection: sa.Connection, account_id: str) -> int:
    """Corrects the account's counters; returns how many spends had wrong ones."""
    _LOCK.run(connection, [account_id])
    pairs = find_miscounted(connection, account_id)
    if pairs:
        UPDATE_SPENDS.run(connection, [changed_row(found, right) for found, right in pairs])
    return len(pairs)


def list_limited_accounts(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(_LIST_LIMITED))


def read_past_spends(
    connection: sa.Connection,
    operations: Sequence[Operation[object]],
    found_holds: Iterable[Hold],
    found: Iterable[Spend],
    now_us: int,
) -> dict[PastPeriod, int]:
    """Sums up the past days and months that late charges count in. A request is rarely settled so late."""
    settled_ids = {operation.request_id for operation in operations if isinstance(operation, Settle)}
    late = [hold for hold in found_holds if hold.state == "swept" and hold.request_id in settled_ids]
    late = [hold for hold in late if hold.counted_hour_us is not None]
    if not late:
        return {}
    key_ids = {spend.spend_id: spend.key_id for spend in found}
    sums: dict[PastPeriod, int] = {}
    for hold in late:
        shared_ids = _shared_ids(spend_id(hold.account_id, hold.key_id), found, operations)
        for key_id in {WHOLE_ACCOUNT, hold.key_id, *(key_ids[each] for each in shared_ids)}:
            for past in past_periods(spend_id(hold.account_id, key_id), charged_hour_us(hold, now_us), now_us):
                if past not in sums:
                    sums[past] = _sum_up_past(connection, hold.account_id, key_id, past)
    return sums


def _shared_ids(own_id: str, found: Iterable[Spend], operations: Iterable[Operation[object]]) -> set[str]:
    """Returns the spends that a key shares, or may share when an operation of the batch was applied."""
    shared = {spend.spend_id: spend.shared_spend_id or spend.spend_id for spend in found}
    ids = {
        own_id,
        *(
            spend_id(each.account_id, each.replaced_key_id)
            for each in operations
            if isinstance(each, InheritSpendLimits) and spend_id(each.account_id, each.key_id) == own_id
        ),
    }
    return {shared[each] for each in ids if each in shared}


def _sum_up_past(connection: sa.Connection, account_id: str, key_id: str, past: PastPeriod) -> int:
    end_us = next_day_us(past.start_us) if past.period == "day" else next_month_us(past.start_us)
    hours = usage_hours.c
    spent = [hours.account_id == account_id, hours.hour_us >= past.start_us, hours.hour_us < end_us]
    if key_id != WHOLE_ACCOUNT:
        is_sharing = (spends.c.account_id == account_id, spends.c.shared_spend_id == spend_id(account_id, key_id))
        sharing = sa.select(spends.c.key_id).where(*is_sharing)
        spent.append(sa.or_(hours.key_id == key_id, hours.key_id.in_(sharing)))
    nanos: int = connection.execute(sa.select(total(hours.cost_nanos)).where(*spent)).scalar_one()
    return nanos


def changed_row(found: Spend, spend: Spend) -> Row:
    return (spend.spend_id, *astuple(spend)[3:], found.total_spent_nanos, found.held_nanos)


def list_spends(connection: sa.Connection, account_id: str, key_ids: Sequence[str]) -> list[Spend]:
    """Returns the account's own first, then its keys', with what those share that have replaced others; only those of
    `key_ids`, if any are given. Their counters are those of now."""
    now_us = read_now_us(connection)
    if key_ids:
        rows = _READ.run(connection, {spend_id(account_id, key_id) for key_id in (WHOLE_ACCOUNT, *key_ids)})
        found = sorted((Spend(*row) for row in rows), key=lambda spend: spend.key_id)
    else:
        found = [Spend(*row) for row in connection.execute(_LIST, {"account_id": account_id, "most": LISTED_MOST})]
    by_id = {spend.spend_id: spend for spend in found}
    by_id |= {spend.spend_id: spend for spend in _read_shared(connection, by_id)}
    return [replace(by_id[each.shared_spend_id or each.spend_id].at(now_us), key_id=each.key_id) for each in found]


def list_reached(connection: sa.Connection, account_id: str, least_nanos: int) -> list[Spend]:
    """Returns the account's own, and those of its keys that have no more than this left of a limit; at most 100 keys,
    and those that share their spends. Their counters are those of now."""
    now_us = read_now_us(connection)
    given = {"account_id": account_id, "least_nanos": least_nanos}
    given |= {"day_us": day_start_us(now_us), "month_us": month_start_us(now_us)}
    found = [Spend(*row).at(now_us) for row in connection.execute(_REACHED, given)]
    of_keys = {spend.spend_id: spend for spend in found if spend.key_id != WHOLE_ACCOUNT}
    if not of_keys:
        return found
    sharing = connection.execute(_SHARING, {"account_id": account_id, "shared_ids": list(of_keys)})
    return [*found, *(replace(of_keys[each.shared_spend_id], key_id=each.key_id) for each in sharing)]
