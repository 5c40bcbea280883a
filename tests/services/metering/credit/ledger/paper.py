"""BatchState kept on paper: the rules with no database around them."""

from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.metering.credit.calendar import day_start_us, month_start_us
from services.metering.credit.ledger.batch_state import BatchState, LiveKey
from services.metering.credit.ledger.holds import charged_hour_us
from services.metering.credit.ledger.spend import (
    WHOLE_ACCOUNT,
    PastPeriod,
    SetSpendLimits,
    Spend,
    past_periods,
    spend_id,
)
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    HOUR_US,
    AccountBalance,
    AnswerT,
    Claim,
    Entry,
    Hold,
    Operation,
    OwedChange,
    Settle,
)
from tests.services.metering.samples import ACCOUNT, KEY, PRICES, grant, request_id

LIFE_US = 1_000
START_US = 490_000 * HOUR_US


class Ledger:
    """BatchState that go from one batch of one operation to the next, as a database would keep them."""

    def __init__(self, balance_nanos: int = 0) -> None:
        self.now_us = START_US
        self.accounts: dict[str, AccountBalance] = {}
        self.holds: dict[str, Hold] = {}
        self.claims: dict[tuple[str, bytes], Claim] = {}
        self.entries: list[Entry] = []
        self.spends: dict[str, Spend] = {}
        self.owed_changes: dict[str, OwedChange] = {}
        self.prices = Prices(1, {1: PRICES})
        if balance_nanos:
            self.apply(grant(balance_nanos, grant_id="the-first"))

    def apply(self, operation: Operation[AnswerT]) -> AnswerT:
        found = self.accounts.values(), self.holds.values(), self.entries, list(self.claims.values())
        live = [(hold.account_id, hold.key_id) for hold in self.holds.values() if hold.state == "held"]
        counted = {LiveKey(operation.account_id, KEY): live.count((operation.account_id, KEY))}
        new = []
        if isinstance(operation, SetSpendLimits):
            new = [self.sum_up(operation.account_id, operation.key_id)]
        spends = list(self.spends.values()), new, self._sum_up_past(operation)
        owed = list(self.owed_changes.values())
        books = BatchState(*found, self.prices, self.now_us, LIFE_US, counted, *spends, owed)
        try:
            return books.apply(operation)
        finally:
            self.accounts, self.holds, self.claims = books.accounts, books.holds, books.claims
            self.entries += books.entries
            self.spends = books.spend_book.spends
            self.owed_changes |= books.owed_changes

    def sum_up(self, account_id: str, key_id: str) -> Spend:
        """Returns what an account or a key has spent, without limits."""
        day_us, month_us = day_start_us(self.now_us), month_start_us(self.now_us)
        spent = [entry for entry in self.entries if entry.account_id == account_id and entry.hour_us]
        held = [hold for hold in self.holds.values() if (hold.account_id, hold.state) == (account_id, "held")]
        if key_id != WHOLE_ACCOUNT:
            key_ids = self._sharing(account_id, key_id)
            spent = [entry for entry in spent if entry.key_id in key_ids]
            held = [hold for hold in held if hold.key_id in key_ids]
        return Spend(
            spend_id(account_id, key_id),
            account_id,
            key_id,
            day_us=day_us,
            month_us=month_us,
            day_spent_nanos=-sum(entry.customer_nanos for entry in spent if entry.hour_us >= day_us),
            month_spent_nanos=-sum(entry.customer_nanos for entry in spent if entry.hour_us >= month_us),
            total_spent_nanos=-sum(entry.customer_nanos for entry in spent),
            held_nanos=sum(hold.amount_nanos for hold in held),
        )

    def _sharing(self, account_id: str, key_id: str) -> set[str]:
        """Returns the key, and those that share its limits."""
        owner_id = spend_id(account_id, key_id)
        return {key_id, *(each.key_id for each in self.spends.values() if each.shared_spend_id == owner_id)}

    def _sum_up_past(self, operation: Operation[Any]) -> dict[PastPeriod, int]:
        hold = self.holds.get(operation.request_id) if isinstance(operation, Settle) else None
        if hold is None or hold.counted_hour_us is None:
            return {}
        sums: dict[PastPeriod, int] = {}
        mine = self.spends.get(spend_id(hold.account_id, hold.key_id))
        owner_id = mine.shared_spend_id if mine is not None else ""
        for key_id in (WHOLE_ACCOUNT, self.spends[owner_id].key_id if owner_id else hold.key_id):
            key_ids = self._sharing(hold.account_id, key_id)
            for past in past_periods(
                spend_id(hold.account_id, key_id), charged_hour_us(hold, self.now_us), self.now_us
            ):
                start_of = day_start_us if past.period == "day" else month_start_us
                spent = (each for each in self.entries if each.account_id == hold.account_id and each.hour_us)
                sums[past] = -sum(
                    each.customer_nanos
                    for each in spent
                    if start_of(each.hour_us) == past.start_us and (key_id == WHOLE_ACCOUNT or each.key_id in key_ids)
                )
        return sums

    def refusal_of(self, operation: Operation[Any]) -> Reason:
        before = (dict(self.accounts), dict(self.holds), dict(self.claims), list(self.entries))
        with pytest.raises(LegatoError) as refusal:
            self.apply(operation)
        assert (self.accounts, self.holds, self.claims, self.entries) == before
        return refusal.value.reason

    def past_the_deadline(self) -> "Ledger":
        self.now_us += LIFE_US + 1
        return self

    @property
    def balance_nanos(self) -> int:
        return self.accounts[ACCOUNT].balance_nanos

    @property
    def held_nanos(self) -> int:
        return self.accounts[ACCOUNT].held_nanos

    def hold(self, number: int) -> Hold:
        return self.holds[request_id(number)]
