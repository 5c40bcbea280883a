"""Reads balances, single requests, and overdue holds."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.records import BILLED, AccountBalance, Entry, Hold
from services.metering.credit.store.tables import IS_LIVE, accounts, holds, ledger
from services.metering.store.schema import total
from services.metering.store.sets import Lookup, select_all
from services.rules.usage import COLUMNS, counts_of

_BALANCES: Final = Lookup(select_all(accounts), "account_id")


def read_balances(connection: sa.Connection, account_ids: Sequence[str]) -> list[AccountBalance]:
    """Returns balances in the order of the ids. An account without any grant has zero."""
    found = {row[0]: AccountBalance(*row) for row in _BALANCES.run(connection, account_ids)}
    return [found.get(account_id) or AccountBalance(account_id) for account_id in account_ids]


def read_request(connection: sa.Connection, account_id: str, request_id: str) -> Hold | None:
    """Returns a request; None if there is none, or it is of another account. If its hold was pruned, it is known by its
    entries."""
    query = sa.select(holds).where(holds.c.request_id == request_id, holds.c.account_id == account_id)
    row = connection.execute(query).one_or_none()
    if row is not None:
        return Hold(*row)
    return read_requests_of_entries(connection, account_id, [request_id]).get(request_id)


def read_requests_of_entries(connection: sa.Connection, account_id: str, request_ids: Sequence[str]) -> dict[str, Hold]:
    """Returns what the entries of requests tell that their holds did, but for when they began."""
    if not request_ids:
        return {}
    is_meant = (ledger.c.request_id.in_(request_ids), ledger.c.kind.in_(BILLED), ledger.c.account_id == account_id)
    entries: dict[str, list[Entry]] = {}
    for row in connection.execute(sa.select(ledger).where(*is_meant).order_by(ledger.c.entry_id)):
        entries.setdefault(row.request_id, []).append(Entry(*row[1:]))
    return {request_id: _hold_of(of_request) for request_id, of_request in entries.items()}


def _hold_of(entries: Sequence[Entry]) -> Hold:
    first, last = entries[0], entries[-1]
    return Hold(
        request_id=first.request_id,
        account_id=first.account_id,
        key_id=first.key_id,
        class_id=first.class_id,
        state="void" if last.kind == "loss" else "settled",
        price_version=first.price_version,
        **_total(entries),
        charged_nanos=-sum(entry.customer_nanos for entry in entries),
        loss_nanos=-sum(entry.loss_nanos for entry in entries),
        basis=last.basis,
        end=last.end,
        counted_hour_us=first.hour_us or None,
        resolved_at_us=last.recorded_at_us,
    )


def _total(entries: Sequence[Entry]) -> dict[str, Any]:
    """Returns their sums by column of usage."""
    return dict(zip(COLUMNS, map(sum, zip(*map(counts_of, entries), strict=True)), strict=True))


class Overdue(NamedTuple):
    request_id: str
    account_id: str
    deadline_at_us: int


_LONGEST_FIRST: Final = (holds.c.deadline_at_us, holds.c.request_id)
# Built once: it is asked all the time, and mostly finds nothing.
_OVERDUE: Final = (
    sa.select(holds.c.request_id, holds.c.account_id, holds.c.deadline_at_us)
    .where(IS_LIVE, holds.c.deadline_at_us < sa.bindparam("now_us"))
    .order_by(*_LONGEST_FIRST)
    .limit(sa.bindparam("most"))
)


def find_overdue(connection: sa.Connection, most: int, after: Overdue | None = None) -> list[Overdue]:
    """Returns holds past their deadline, the longest overdue first; `after` is the last of the previous portion."""
    query = _OVERDUE
    if after is not None:
        query = query.where(sa.tuple_(*_LONGEST_FIRST) > sa.tuple_(after.deadline_at_us, after.request_id))
    return [Overdue(*row) for row in connection.execute(query, {"now_us": read_now_us(connection), "most": most})]


class HoldCounts(NamedTuple):
    live: int
    # Past their deadline.
    overdue: int


class OutstandingCredit(NamedTuple):
    """Credit of all accounts that running requests hold, and that is owed for returned payments."""

    live_holds: int
    held_nanos: int
    overdue_holds: int
    overdue_nanos: int
    owing_accounts: int
    owed_nanos: int


def read_outstanding(connection: sa.Connection) -> OutstandingCredit:
    is_overdue = holds.c.deadline_at_us < read_now_us(connection)
    late_nanos = sa.case((is_overdue, holds.c.amount_nanos), else_=0)
    late = sa.func.count().filter(is_overdue)
    held = sa.select(sa.func.count(), total(holds.c.amount_nanos), late, total(late_nanos)).where(IS_LIVE)
    owed = sa.select(sa.func.count(), total(accounts.c.owed_nanos)).where(accounts.c.owed_nanos > 0)
    return OutstandingCredit(*connection.execute(held).one(), *connection.execute(owed).one())


def count_holds(connection: sa.Connection) -> HoldCounts:
    is_overdue = holds.c.deadline_at_us < read_now_us(connection)
    query = sa.select(sa.func.count(), sa.func.count().filter(is_overdue)).where(IS_LIVE)
    return HoldCounts(*connection.execute(query).one())
