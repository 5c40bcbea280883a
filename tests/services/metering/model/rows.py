"""Everything that the database knows of some accounts, to compare with the model."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from services.metering.credit.ledger.spend import Spend, SpendLimits
from services.metering.credit.records import AccountBalance, Claim, Entry, Hold
from services.metering.credit.store.closings import read_retention
from services.metering.credit.store.tables import (
    COUNTED,
    account_hours,
    accounts,
    claims,
    holds,
    ledger,
    spends,
    usage_hours,
)
from tests.services.metering.model.model import Model
from tests.services.metering.model.records import Request

_QUERIES = [
    sa.select(table)
    .where(table.c.account_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(*table.primary_key.columns)
    for table in (accounts, holds, ledger, claims, usage_hours, spends, account_hours)
]


class Rows(NamedTuple):
    accounts: list[AccountBalance]
    holds: list[Hold]
    entries: list[Entry]
    claims: list[Claim]
    counters: list[dict[str, Any]]
    spends: list[Spend]
    # By account, hour and class.
    account_hours: dict[tuple[Any, ...], list[int]]
    # Entries from before it are not here.
    pruned_before_us: int

    def requests(self, now_us: int) -> dict[str, Request]:
        """Each request as the model keeps it."""
        return {hold.request_id: self._request(hold, now_us) for hold in self.holds}

    def totals(self) -> dict[tuple[Any, ...], list[int]]:
        """Sums as the model does, over all hours: one may end while a test runs."""
        return self._sums("account_id", "key_id", "class_id")

    def hours(self) -> dict[tuple[Any, ...], list[int]]:
        """Sums as `account_hours` has them."""
        return self._sums("account_id", "hour_us", "class_id")

    def _sums(self, *keys: str) -> dict[tuple[Any, ...], list[int]]:
        sums: dict[tuple[Any, ...], list[int]] = {}
        for row in self.counters:
            key = tuple(row[name] for name in keys)
            added = (row[name] for name in COUNTED)
            sums[key] = [sum(pair) for pair in zip(sums.get(key, [0] * len(COUNTED)), added, strict=True)]
        return sums

    def _request(self, hold: Hold, now_us: int) -> Request:
        return Request(
            account_id=hold.account_id,
            key_id=hold.key_id,
            class_id=hold.class_id,
            state=hold.state,
            price_version=hold.price_version,
            amount_nanos=hold.amount_nanos,
            overdue=hold.deadline_at_us is not None and hold.deadline_at_us < now_us,
            usage=hold.usage,
            counted_hour_us=hold.counted_hour_us,
            late_hour_us=self._late_hour_us(hold.request_id),
            charge_nanos=self._charge_nanos(hold),
            late_charge_nanos=self._booked_nanos("late_charge", hold.request_id),
            loss_nanos=hold.loss_nanos,
            loss_bound_nanos=hold.loss_bound_nanos,
            basis=hold.basis,
            end=hold.end,
        )

    def _charge_nanos(self, hold: Hold) -> int:
        if (hold.counted_hour_us or self.pruned_before_us) < self.pruned_before_us:
            return hold.charged_nanos - self._booked_nanos("late_charge", hold.request_id)
        return self._booked_nanos("charge", hold.request_id)

    def _late_hour_us(self, request_id: str) -> int | None:
        late = (each for each in self.entries if (each.kind, each.request_id) == ("late_charge", request_id))
        return next((each.hour_us for each in late), None)

    def _booked_nanos(self, kind: str, request_id: str) -> int:
        """Sums every such entry, also where one at most should be."""
        booked = (entry for entry in self.entries if (entry.kind, entry.request_id) == (kind, request_id))
        return -sum(entry.customer_nanos for entry in booked)


def read_rows(connection: sa.Connection, account_ids: Sequence[str]) -> Rows:
    found = [connection.execute(query, {"ids": account_ids}) for query in _QUERIES]
    return Rows(
        [AccountBalance(*row) for row in found[0]],
        [Hold(*row) for row in found[1]],
        [Entry(*row[1:]) for row in found[2]],
        [Claim(*row) for row in found[3]],
        [dict(row._mapping) for row in found[4]],
        [Spend(*row) for row in found[5]],
        {tuple(row[:3]): list(row[3:]) for row in found[6]},
        read_retention(connection).ledger_pruned_before_us,
    )


def differences(model: Model, rows: Rows, account_ids: Sequence[str]) -> list[str]:
    """Each on a line; none: the rows are what the model says."""
    found = {account.account_id: account for account in rows.accounts}
    pairs: list[tuple[str, Any, Any]] = [
        (each, found.get(each, AccountBalance(each)), model.account(each)) for each in account_ids
    ]
    requests, totals, counters = rows.requests(model.now_us), rows.totals(), model.counters()
    pairs += [(each, requests.get(each), model.requests.get(each)) for each in requests.keys() | model.requests.keys()]
    pairs += [(str(each), totals.get(each), counters.get(each)) for each in totals.keys() | counters.keys()]
    pairs.append(("account_hours", rows.account_hours, rows.hours()))
    stored_claims = {(each.account_id, each.key_digest): (each.request_id, each.body_digest) for each in rows.claims}
    meant_claims = {key: (claim.request_id, claim.body_digest) for key, claim in model.claims.items()}
    pairs.append(("claims", stored_claims, meant_claims))
    own = [each for each in rows.spends if not each.shared_spend_id]
    stored_limits = {(each.account_id, each.key_id): each.limits for each in own}
    pairs.append(("limits", stored_limits, model.limits))
    owners = {each.spend_id: each.key_id for each in own}
    stored_shared = {
        (each.account_id, each.key_id): owners.get(each.shared_spend_id) for each in rows.spends if each not in own
    }
    pairs.append(("shared limits", stored_shared, model.shared))
    return [f"{name}: {stored} is stored, {meant} was meant" for name, stored, meant in pairs if stored != meant]


def broken_bounds(rows: Rows) -> Iterator[str]:
    """Yields violations of general rules."""
    for account in rows.accounts:
        if not 0 <= account.held_nanos <= account.balance_nanos:
            yield f"{account}: not covered"
    for spend in rows.spends:
        if spend.shared_spend_id:
            if spend.total_spent_nanos or spend.held_nanos or spend.limits != SpendLimits():
                yield f"{spend}: has something of its own"
        else:
            yield from _miscounted(spend, rows)
    for hold in rows.holds:
        billed = [entry for entry in rows.entries if entry.request_id == hold.request_id]
        if -sum(entry.customer_nanos for entry in billed) > sum(entry.revenue_nanos for entry in billed):
            yield f"request {hold.request_id}: charged more than its cost"
    for entry in rows.entries:
        if entry.loss_nanos and not entry.reason:
            yield f"{entry}: lost, without a reason"


def _miscounted(spend: Spend, rows: Rows) -> Iterator[str]:
    """Yields a day, a month or a total that is not the sum of its charges."""
    entries = [entry for entry in rows.entries if entry.account_id == spend.account_id and entry.hour_us]
    charges = [(entry.hour_us, entry.key_id, -entry.customer_nanos) for entry in entries]
    if rows.pruned_before_us:
        counters = [row for row in rows.counters if row["account_id"] == spend.account_id]
        charges = [(row["hour_us"], row["key_id"], row["cost_nanos"]) for row in counters]
    key_ids = {spend.key_id, *(each.key_id for each in rows.spends if each.shared_spend_id == spend.spend_id)}
    charged = [(hour_us, nanos) for hour_us, key_id, nanos in charges if not spend.key_id or key_id in key_ids]
    counted = (spend.day_spent_nanos, spend.month_spent_nanos, spend.total_spent_nanos)
    for start_us, counted_nanos in zip((spend.day_us, spend.month_us, 0), counted, strict=True):
        spent_nanos = sum(nanos for hour_us, nanos in charged if hour_us >= start_us)
        # The hours of months that were pruned are summed up.
        if counted_nanos != spent_nanos and not 0 < start_us < rows.pruned_before_us:
            yield f"{spend}: {spent_nanos} was charged since {start_us}"
