"""The rows of the ledger that one batch reads and writes."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final, Literal, NamedTuple

from services.chassis.changes import Change, to_json
from services.metering.credit.ledger.holds import charged_hour_us
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.ledger.rules import apply
from services.metering.credit.ledger.spend import NO_LIMITS, PastPeriod, Spend, SpendBook
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    CHARGES,
    COMMAND_LINE,
    AccountBalance,
    AccountChange,
    Adjust,
    AnswerT,
    Claim,
    CreditOperation,
    Entry,
    Grant,
    Hold,
    Kind,
    Operation,
    OwedChange,
    RequestOperation,
    Reserve,
    RestorePayment,
    ReturnPayment,
)
from services.rules.usage import counts_of

# Grants and adjustments have no hold; their own entry makes them idempotent.
CREDIT_KINDS: Final[dict[type[CreditOperation], Kind]] = {
    Grant: "grant",
    Adjust: "adjustment",
    ReturnPayment: "adjustment",
    RestorePayment: "adjustment",
}


class LiveKey(NamedTuple):
    """The key whose live holds are counted; by account, too, since the account is what is locked."""

    account_id: str
    key_id: str


class CounterKey(NamedTuple):
    account_id: str
    key_id: str
    class_id: str
    hour_us: int


class BatchState:
    """A batch's state: operations see earlier ones' changes."""

    def __init__(
        self,
        accounts: Iterable[AccountBalance],
        holds: Iterable[Hold],
        credits: Sequence[Entry],
        claims: Sequence[Claim],
        prices: Prices,
        now_us: int,
        life_us: int,
        live_holds: Mapping[LiveKey, int] | None = None,
        spends: Sequence[Spend] = (),
        new_spends: Sequence[Spend] = (),
        past_spends: Mapping[PastPeriod, int] | None = None,
        owed_changes: Sequence[OwedChange] = (),
    ) -> None:
        """Starts from what was read: `credits` are earlier bookings of the batch's grants and adjustments; `claims` are
        on the keys that its reserves claim, with their holds among `holds`; `live_holds` counts those of keys with a
        limit; `spends` are of accounts and keys with spend limits, `new_spends` of those that get their first ones;
        `past_spends` are sums of the past periods that late charges count in; `owed_changes` are of the returns that
        the batch restores."""
        self.found_accounts = {account.account_id: account for account in accounts}
        self.found_holds = {hold.request_id: hold for hold in holds}
        self.found_claims = {(claim.account_id, claim.key_digest): claim for claim in claims} if claims else {}
        self.accounts = dict(self.found_accounts)
        self.holds = dict(self.found_holds)
        self.claims = dict(self.found_claims)
        self.entries: list[Entry] = []
        self._found_owed = {change.request_id: change for change in owed_changes} if owed_changes else {}
        self.owed_changes: dict[str, OwedChange] = {}
        # For the audit log.
        self.changes: list[AccountChange] = []
        self._credits = {(entry.kind, entry.request_id): entry for entry in credits} if credits else {}
        self._prices = prices
        self.now_us = now_us
        self._life_us = life_us
        self._live_holds = dict(live_holds or {})
        self.spend_book = SpendBook(spends, new_spends, now_us, past_spends)
        # It has any, or never will.
        self.has_spends = bool(spends or new_spends)

    def apply(self, operation: Operation[AnswerT]) -> AnswerT:
        account_id = operation.account_id
        account = self.accounts.get(account_id) or AccountBalance(account_id)
        hold = self.holds.get(operation.request_id) if isinstance(operation, RequestOperation) else None
        effect = apply(operation, self._context(operation, account, hold))
        if effect.account is not None and effect.account != account:
            self.accounts[account_id] = effect.account
        if effect.hold is not None:
            self.holds[effect.hold.request_id] = effect.hold
            if self._live_holds:
                self._count_live(hold, effect.hold)
            if self.has_spends:
                self.spend_book.count(hold, effect.hold, effect.entry)
        self._book(operation, effect)
        if effect.claim is not None:
            self.claims[account_id, effect.claim.key_digest] = effect.claim
        return effect.answer

    def _book(self, operation: Operation[AnswerT], effect: Effect[AnswerT]) -> None:
        if effect.entry is not None:
            self.entries.append(effect.entry)
            if isinstance(operation, CreditOperation):
                self._credits[effect.entry.kind, operation.operation_id] = effect.entry
                self._record_credit(operation)
        if effect.repayment is not None:
            self.entries.append(effect.repayment)
        if effect.owed is not None:
            self.owed_changes[effect.owed.request_id] = effect.owed
        if effect.spends:
            self.spend_book.put(effect.spends)
        if effect.change is not None:
            self.changes.append(effect.change)

    def _record_credit(self, operation: CreditOperation) -> None:
        if isinstance(operation, Grant | Adjust) and operation.is_by_command_line:
            action: Literal["credit.granted", "credit.adjusted"] = (
                "credit.granted" if isinstance(operation, Grant) else "credit.adjusted"
            )
            changes_json = to_json([Change("amount_nanos", None, operation.amount_nanos)])
            self.changes.append(
                AccountChange(action, operation.account_id, "", *COMMAND_LINE, self.now_us, changes_json)
            )

    def _context(self, operation: Operation[object], account: AccountBalance, hold: Hold | None) -> RuleContext:
        booked, returned, claim, claimant, live_holds, key_id, hour_us = None, None, None, None, 0, "", None
        returned_owed_nanos = 0
        if isinstance(operation, CreditOperation):
            booked = self._credits.get((CREDIT_KINDS[type(operation)], operation.operation_id))
            if type(operation) is RestorePayment:
                returned = self._credits.get(("adjustment", operation.return_id))
                change = self.owed_changes.get(operation.return_id) or self._found_owed.get(operation.return_id)
                returned_owed_nanos = 0 if change is None else change.owed_nanos
        elif type(operation) is Reserve:
            # A repetition is told what the key leaves that the request was reserved with.
            key_id = operation.key_id if hold is None else hold.key_id
            if operation.claim is not None:
                claim = self.claims.get((operation.account_id, operation.claim.key_digest))
                claimant = None if claim is None else self.holds.get(claim.request_id)
            if operation.concurrent_requests is not None:
                live_holds = self._live_holds[LiveKey(operation.account_id, operation.key_id)]
        elif hold is not None:
            key_id = hold.key_id
            hour_us = None if hold.counted_hour_us is None else charged_hour_us(hold, self.now_us)
        room = self.spend_book.room(account.account_id, key_id, hour_us) if account.has_spend_limits else NO_LIMITS
        return RuleContext(
            account=account,
            hold=hold,
            booked=booked,
            prices=self._prices,
            now_us=self.now_us,
            life_us=self._life_us,
            spends=self.spend_book.spends,
            new_spends=self.spend_book.new,
            claim=claim,
            claimant=claimant,
            live_holds=live_holds,
            room=room,
            returned=returned,
            returned_owed_nanos=returned_owed_nanos,
        )

    def _count_live(self, before: Hold | None, after: Hold) -> None:
        lived, lives = before is not None and before.state == "held", after.state == "held"
        key = LiveKey(after.account_id, after.key_id)
        if lived != lives and key in self._live_holds:
            self._live_holds[key] += 1 if lives else -1

    def counted(self) -> dict[CounterKey, list[int]]:
        """Returns what the batch adds to each hour's counters: requests, the columns of usage, cost and loss."""
        counters: dict[CounterKey, list[int]] = {}
        for entry in self.entries:
            if entry.kind not in CHARGES:
                continue
            key = CounterKey(entry.account_id, entry.key_id, entry.class_id, entry.hour_us)
            added = counters.get(key)
            counts = (entry.requests, *counts_of(entry), -entry.customer_nanos, -entry.loss_nanos)
            counters[key] = [*counts] if added is None else [*map(add, added, counts)]
        return counters
