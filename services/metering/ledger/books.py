"""The rows of the ledger that one batch reads and writes."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from services.metering.ledger.operations import (
    Adjust,
    AnswerT,
    CreditOperation,
    Grant,
    Operation,
    RequestOperation,
    Reserve,
)
from services.metering.ledger.prices import Prices
from services.metering.ledger.records import CHARGES, AccountBalance, Claim, Entry, Hold, Kind
from services.metering.ledger.rule_context import RuleContext
from services.metering.ledger.rules import apply

# Grants and adjustments have no hold; their own entry makes them idempotent.
CREDIT_KINDS: Final[dict[type[CreditOperation], Kind]] = {Grant: "grant", Adjust: "adjustment"}


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
        credits: Iterable[Entry],
        claims: Iterable[Claim],
        prices: Prices,
        now_us: int,
        life_us: int,
        live_holds: Mapping[LiveKey, int] | None = None,
    ) -> None:
        """Starts from what was read: `credits` are earlier bookings of the batch's grants and adjustments; `claims` are
        on the keys that its reserves claim, with their holds among `holds`; `live_holds` counts those of keys with a
        limit."""
        self.found_accounts = {account.account_id: account for account in accounts}
        self.found_holds = {hold.request_id: hold for hold in holds}
        self.found_claims = {(claim.account_id, claim.key_digest): claim for claim in claims}
        self.accounts = dict(self.found_accounts)
        self.holds = dict(self.found_holds)
        self.claims = dict(self.found_claims)
        self.entries: list[Entry] = []
        self._credits = {(entry.kind, entry.request_id): entry for entry in credits}
        self._prices = prices
        self._now_us = now_us
        self._life_us = life_us
        self._live_holds = dict(live_holds or {})

    def apply(self, operation: Operation[AnswerT]) -> AnswerT:
        account_id = operation.account_id
        account = self.accounts.get(account_id) or AccountBalance(account_id)
        hold, booked = None, None
        if isinstance(operation, CreditOperation):
            booked = self._credits.get((CREDIT_KINDS[type(operation)], operation.operation_id))
        elif isinstance(operation, RequestOperation):
            hold = self.holds.get(operation.request_id)
        claim, claimant, live_holds = None, None, 0
        if type(operation) is Reserve:
            claim, claimant = self._claimed(operation)
            live_holds = self._live_holds_of(operation)
        context = RuleContext(
            account, hold, booked, self._prices, self._now_us, self._life_us, claim, claimant, live_holds
        )
        effect = apply(operation, context)
        if effect.account is not None and effect.account != account:
            self.accounts[account_id] = effect.account
        if effect.hold is not None:
            self.holds[effect.hold.request_id] = effect.hold
            if self._live_holds:
                self._count_live(hold, effect.hold)
        if effect.entry is not None:
            self.entries.append(effect.entry)
            if isinstance(operation, CreditOperation):
                self._credits[effect.entry.kind, operation.operation_id] = effect.entry
        if effect.claim is not None:
            self.claims[account_id, effect.claim.key_digest] = effect.claim
        return effect.answer

    def _claimed(self, operation: Reserve) -> tuple[Claim | None, Hold | None]:
        """Returns the claim on the operation's key, and the hold of the request that owns it."""
        if operation.claim is None:
            return None, None
        claim = self.claims.get((operation.account_id, operation.claim.key_digest))
        return claim, None if claim is None else self.holds.get(claim.request_id)

    def _live_holds_of(self, operation: Reserve) -> int:
        if operation.concurrent_requests is None:
            return 0
        return self._live_holds[LiveKey(operation.account_id, operation.key_id)]

    def _count_live(self, before: Hold | None, after: Hold) -> None:
        lived, lives = before is not None and before.state == "held", after.state == "held"
        key = LiveKey(after.account_id, after.key_id)
        if lived != lives and key in self._live_holds:
            self._live_holds[key] += 1 if lives else -1

    def counted(self) -> dict[CounterKey, list[int]]:
        """Returns what the batch adds to each hour's counters: requests, three kinds of tokens, cost and loss."""
        counters: dict[CounterKey, list[int]] = {}
        for entry in self.entries:
            if entry.kind not in CHARGES:
                continue
            key = CounterKey(entry.account_id, entry.key_id, entry.class_id, entry.hour_us)
            added = counters.get(key)
            if added is None:
                added = counters[key] = [0] * 6
            added[0] += entry.requests
            added[1] += entry.prompt_tokens
            added[2] += entry.cached_tokens
            added[3] += entry.completion_tokens
            added[4] -= entry.customer_nanos
            added[5] -= entry.loss_nanos
        return counters
