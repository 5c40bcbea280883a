"""Reads and writes what accounts and keys with spend limits have spent. Their accounts are locked by the caller."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from msgspec.structs import astuple, replace

from services.metering.ledger.holds import charged_hour_us
from services.metering.ledger.months import day_start_us, month_start_us, next_day_us, next_month_us
from services.metering.ledger.records import AccountBalance, Hold, Operation, RequestOperation, Reserve, Settle
from services.metering.ledger.spend import (
    WHOLE_ACCOUNT,
    InheritSpendLimits,
    PastPeriod,
    SetSpendLimits,
    Spend,
    past_periods,
    spend_id,
)
from services.metering.store.expressions import IS_LIVE, total
from services.metering.store.sets import Lookup, Row, insert_rows, select_all, update_rows
from services.metering.store.tables import holds, spends, usage_hours

_READ: Final = Lookup(select_all(spends), "spend_id")
_LIST: Final = (
    sa.select(spends)
    .where(spends.c.account_id == sa.bindparam("account_id"))
    .order_by(spends.c.key_id)
    .limit(sa.bindparam("most"))
)
_READ_OF_ACCOUNTS: Final = Lookup(select_all(spends), "account_id")
INSERT_SPENDS: Final = insert_rows(spends, Spend.__struct_fields__)
_CHANGES: Final = tuple(name for name in Spend.__struct_fields__ if name not in ("spend_id", "account_id", "key_id"))
_GUARDS: Final = ("total_spent_nanos", "held_nanos")
UPDATE_SPENDS: Final = update_rows(spends, "spend_id", _CHANGES, found=_GUARDS)


def read_spends(
    connection: sa.Connection,
    operations: Sequence[Operation[Any]],
    accounts: Iterable[AccountBalance],
    found_holds: Iterable[Hold],
) -> list[Spend]:
    """Reads those of the accounts and keys that the operations are about."""
    limited_ids = {account.account_id for account in accounts if account.has_spend_limits}
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


def read_spends_of(connection: sa.Connection, account_id: str) -> list[Spend]:
    return [Spend(*row) for row in _READ_OF_ACCOUNTS.run(connection, [account_id])]


def _read_shared(connection: sa.Connection, found: Mapping[str, Spend]) -> list[Spend]:
    """Reads the spends that keys share which have replaced others, as far as they are not known."""
    shared_ids = {spend.shared_spend_id for spend in found.values()} - {"", *found}
    return [Spend(*row) for row in _READ.run(connection, shared_ids)] if shared_ids else []


def read_new_spends(
    connection: sa.Connection, operations: Iterable[Operation[Any]], found: Iterable[Spend], now_us: int
) -> list[Spend]:
    """Sums up what accounts and keys have spent that get their first limits."""
    found_ids = {spend.spend_id for spend in found}
    subjects = {
        (operation.account_id, operation.key_id)
        for operation in operations
        if isinstance(operation, SetSpendLimits) and spend_id(operation.account_id, operation.key_id) not in found_ids
    }
    return [_sum_up(connection, account_id, key_id, now_us) for account_id, key_id in sorted(subjects)]


def _sum_up(connection: sa.Connection, account_id: str, key_id: str, now_us: int) -> Spend:
    day_us, month_us = day_start_us(now_us), month_start_us(now_us)
    spent = [usage_hours.c.account_id == account_id]
    held = [holds.c.account_id == account_id, IS_LIVE]
    if key_id != WHOLE_ACCOUNT:
        spent.append(usage_hours.c.key_id == key_id)
        held.append(holds.c.key_id == key_id)
    cost_nanos, hour_us = usage_hours.c.cost_nanos, usage_hours.c.hour_us
    sums = [total(sa.case((hour_us >= since_us, cost_nanos), else_=0)) for since_us in (day_us, month_us, 0)]
    day_nanos, month_nanos, total_nanos = tuple(connection.execute(sa.select(*sums).where(*spent)).one())
    held_nanos: int = connection.execute(sa.select(total(holds.c.amount_nanos)).where(*held)).scalar_one()
    return Spend(
        spend_id=spend_id(account_id, key_id),
        account_id=account_id,
        key_id=key_id,
        day_us=day_us,
        month_us=month_us,
        day_spent_nanos=day_nanos,
        month_spent_nanos=month_nanos,
        total_spent_nanos=total_nanos,
        held_nanos=held_nanos,
    )


def read_past_spends(
    connection: sa.Connection,
    operations: Sequence[Operation[Any]],
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


def _shared_ids(own_id: str, found: Iterable[Spend], operations: Iterable[Operation[Any]]) -> set[str]:
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


def list_spends(connection: sa.Connection, account_id: str, key_ids: Sequence[str], most: int) -> list[Spend]:
    """Returns the account's own first, then its keys', with what those share that have replaced others; only those of
    `key_ids`, if any are given."""
    if key_ids:
        rows = _READ.run(connection, {spend_id(account_id, key_id) for key_id in (WHOLE_ACCOUNT, *key_ids)})
        found = sorted((Spend(*row) for row in rows), key=lambda spend: spend.key_id)[:most]
    else:
        found = [Spend(*row) for row in connection.execute(_LIST, {"account_id": account_id, "most": most})]
    by_id = {spend.spend_id: spend for spend in found}
    by_id |= {spend.spend_id: spend for spend in _read_shared(connection, by_id)}
    return [replace(by_id[each.shared_spend_id or each.spend_id], key_id=each.key_id) for each in found]
