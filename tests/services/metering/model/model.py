"""A second set of books, from the protocol's text alone, and deliberately naive.

It keeps facts: what was credited, and what is known of each request. Balances, held credit and counters are added up
anew for each question, so there is nothing here that could be updated twice, or not at all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from math import ceil
from typing import Any

from services.chassis.errors import Reason
from services.metering.credit.ledger.holds import WHOLE_ANSWERS_FREE
from services.metering.credit.ledger.spend import InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.prices import Price
from services.metering.credit.records import (
    AccountBalance,
    Adjust,
    Checkpoint,
    Extend,
    Extended,
    Grant,
    Operation,
    RequestOperation,
    Reserve,
    Reserved,
    RestorePayment,
    ReturnPayment,
    Settle,
    Settled,
    Sweep,
    Swept,
    Void,
)
from services.rules.usage import Usage, counts_of
from tests.services.metering.model.periods import Limit, begin_of, by_period, end_of, is_in, time_of
from tests.services.metering.model.records import Claim, Refusal, Request

HOUR_US = 3_600_000_000


class Model:
    def __init__(self, versions: Mapping[int, Mapping[str, Price]], now_us: int) -> None:
        self.requests: dict[str, Request] = {}
        # By kind and id: the account, and the amount.
        self.credits: dict[tuple[str, str], tuple[str, int]] = {}
        # By id: the account, and the amount that was returned; and those that were restored.
        self.returns: dict[str, tuple[str, int]] = {}
        self.restored: dict[str, tuple[str, int]] = {}
        # By account and key.
        self.claims: dict[tuple[str, bytes], Claim] = {}
        # By account and key, or "" for the whole account.
        self.limits: dict[tuple[str, str], SpendLimits] = {}
        # By account and key: the key whose limits it shares.
        self.shared: dict[tuple[str, str], str] = {}
        # What requests were charged that are no longer known: by account and key; and what they count as.
        self.pruned_nanos: dict[tuple[str, str], int] = {}
        self.pruned_counters: dict[tuple[str, str, str], list[int]] = {}
        self.now_us = now_us
        self._versions = versions

    def copy(self) -> "Model":
        other = Model(self._versions, self.now_us)
        other.requests = {request_id: replace(request) for request_id, request in self.requests.items()}
        other.credits = dict(self.credits)
        other.returns, other.restored = dict(self.returns), dict(self.restored)
        other.claims = {key: replace(claim) for key, claim in self.claims.items()}
        other.limits, other.shared = dict(self.limits), dict(self.shared)
        other.pruned_nanos = dict(self.pruned_nanos)
        other.pruned_counters = dict(self.pruned_counters)
        return other

    def balance_nanos(self, account_id: str) -> int:
        return max(self.net_nanos(account_id), self.held_nanos(account_id))

    def owed_nanos(self, account_id: str) -> int:
        return self.balance_nanos(account_id) - self.net_nanos(account_id)

    def net_nanos(self, account_id: str) -> int:
        """Returns what an account was given and has not spent. It may be less than what is held, and less than nothing:
        then the rest is owed."""
        credited = sum(nanos for owner, nanos in self.credits.values() if owner == account_id)
        credited -= sum(nanos for owner, nanos in self.returns.values() if owner == account_id)
        credited += sum(nanos for owner, nanos in self.restored.values() if owner == account_id)
        return credited - self.spent_nanos(account_id, "", "total", self.now_us)

    def held_nanos(self, account_id: str) -> int:
        return sum(request.amount_nanos for request in self._requests_of(account_id) if request.state == "held")

    def free_nanos(self, account_id: str) -> int:
        return self.balance_nanos(account_id) - self.held_nanos(account_id)

    def account(self, account_id: str) -> AccountBalance:
        has_limits = any(owner == account_id for owner, _ in self.limits)
        amounts = self.balance_nanos(account_id), self.held_nanos(account_id)
        return AccountBalance(account_id, *amounts, has_limits, owed_nanos=self.owed_nanos(account_id))

    def spent_nanos(self, account_id: str, key_id: str, period: str, at_us: int) -> int:
        """Returns what was charged in the day or the month of a time, or at any time."""
        charged = [
            each.charge_nanos * is_in(period, each.counted_hour_us, at_us)
            + each.late_charge_nanos * is_in(period, each.late_hour_us, at_us)
            for each in self._requests_of(account_id)
            if self._is_of(account_id, key_id, each.key_id)
        ]
        if period == "total":
            pruned = self.pruned_nanos.items()
            its_own = ((key, nanos) for (owner, key), nanos in pruned if owner == account_id)
            charged += [nanos for key, nanos in its_own if self._is_of(account_id, key_id, key)]
        return sum(charged)

    def held_of_nanos(self, account_id: str, key_id: str) -> int:
        running = (each for each in self._requests_of(account_id) if each.state == "held")
        return sum(each.amount_nanos for each in running if self._is_of(account_id, key_id, each.key_id))

    def _is_of(self, account_id: str, limited_key: str, key_id: str) -> bool:
        """Returns whether a key's requests count for the limits of another, or of the account."""
        return not limited_key or self._owner(account_id, limited_key) == self._owner(account_id, key_id)

    def _owner(self, account_id: str, key_id: str) -> str:
        return self.shared.get((account_id, key_id), key_id)

    def _limits_of(self, account_id: str, key_id: str, counted_us: int | None = None) -> "Iterator[Limit]":
        """Yields each limit of a charge that counts at a time; None: now."""
        at_us = self.now_us if counted_us is None else counted_us
        for owner in {"", self._owner(account_id, key_id)}:
            for period, limit_nanos in by_period(self.limits.get((account_id, owner), SpendLimits())):
                if limit_nanos is not None:
                    is_now = begin_of(period, at_us) == begin_of(period, self.now_us)
                    held_nanos = self.held_of_nanos(account_id, owner) if is_now else 0
                    yield Limit(period, limit_nanos, self.spent_nanos(account_id, owner, period, at_us), held_nanos)

    def room_nanos(self, account_id: str, key_id: str, counted_us: int | None = None) -> int:
        """Returns the free credit that no limit keeps a request of the key from."""
        limits = self._limits_of(account_id, key_id, counted_us)
        rooms = [max(0, each.nanos - each.spent_nanos - each.held_nanos) for each in limits]
        return min([self.free_nanos(account_id), *rooms])

    def counters(self) -> dict[tuple[str, str, str], list[int]]:
        """Sums by account, key and class: requests, the columns of usage, the charges and the losses."""
        totals = dict(self.pruned_counters)
        for request in self.requests.values():
            if request.counted_hour_us is not None:
                added = (1, *counts_of(request.usage), request.charged_nanos, request.loss_nanos)
                key = (request.account_id, request.key_id, request.class_id)
                totals[key] = [sum(pair) for pair in zip(totals.get(key, [0] * len(added)), added, strict=True)]
        return totals

    def answer(self, operation: Operation[Any], price_version: int, overdue: bool) -> Any:
        """Answers as a replica that reserves by `price_version`, its holds `overdue` at once, or never."""
        if isinstance(operation, Grant):
            return self._credit("grant", operation)
        if isinstance(operation, Adjust):
            return self._credit("adjustment", operation)
        if isinstance(operation, ReturnPayment):
            return self._return(operation)
        if isinstance(operation, RestorePayment):
            return self._restore(operation)
        if isinstance(operation, InheritSpendLimits):
            return self._inherit(operation)
        if isinstance(operation, SetSpendLimits):
            return self._limit(operation)
        assert isinstance(operation, RequestOperation)
        request = self.requests.get(operation.request_id)
        if request is not None and request.account_id != operation.account_id:
            return Refusal(Reason.REQUEST_INVALID)
        if isinstance(operation, Reserve):
            return self._reserve(operation, request, price_version, overdue)
        rule: Any = {
            Extend: self._extend,
            Checkpoint: self._checkpoint,
            Settle: self._settle,
            Void: self._void,
            Sweep: self._sweep,
        }[type(operation)]
        return rule(operation, request)

    def _return(self, operation: ReturnPayment) -> AccountBalance | Refusal:
        asked = (operation.account_id, operation.amount_nanos)
        known = self.returns.setdefault(operation.operation_id, asked)
        return self.account(operation.account_id) if known == asked else Refusal(Reason.REQUEST_INVALID)

    def _restore(self, operation: RestorePayment) -> AccountBalance | Refusal:
        asked = (operation.account_id, operation.amount_nanos)
        known = self.restored.get(operation.operation_id) or self.returns.get(operation.return_id)
        if known != asked:
            return Refusal(Reason.REQUEST_INVALID)
        self.restored[operation.operation_id] = asked
        return self.account(operation.account_id)

    def _credit(self, kind: str, operation: Grant | Adjust) -> AccountBalance | Refusal:
        booked = (operation.account_id, operation.amount_nanos)
        if self.credits.get((kind, operation.operation_id), booked) != booked:
            return Refusal(Reason.REQUEST_INVALID)
        if (kind, operation.operation_id) not in self.credits:
            if self.free_nanos(operation.account_id) + operation.amount_nanos < 0:
                return Refusal(Reason.REQUEST_INVALID)
            self.credits[kind, operation.operation_id] = booked
        return self.account(operation.account_id)

    def _inherit(self, operation: InheritSpendLimits) -> SpendLimits | Refusal:
        account_id, key_id = operation.account_id, operation.key_id
        known = self.limits.get((account_id, self._owner(account_id, key_id)))
        if known is not None:
            return known
        if self.spent_nanos(account_id, key_id, "total", self.now_us) or self.held_of_nanos(account_id, key_id):
            return Refusal(Reason.REQUEST_INVALID)
        replaced = self._owner(account_id, operation.replaced_key_id)
        if (account_id, replaced) in self.limits:
            self.shared[account_id, key_id] = replaced
            return self.limits[account_id, replaced]
        self.limits[account_id, key_id] = SpendLimits()
        return SpendLimits()

    def _limit(self, operation: SetSpendLimits) -> SpendLimits | Refusal:
        account_id, wanted = operation.account_id, operation.limits
        key_id = self._owner(account_id, operation.key_id)
        whole = self.limits.get((account_id, ""), SpendLimits())
        for (_, mine), (_, most) in zip(by_period(wanted), by_period(whole), strict=True):
            if key_id and mine is not None and most is not None and mine > most:
                return Refusal(Reason.REQUEST_INVALID)
        self.limits[account_id, key_id] = wanted
        if not key_id:
            for each, limits in self.limits.items():
                if each[0] == account_id:
                    pairs = zip(by_period(limits), by_period(wanted), strict=True)
                    lowered = [
                        mine if mine is None or most is None else min(mine, most) for (_, mine), (_, most) in pairs
                    ]
                    self.limits[each] = SpendLimits(*lowered)
        return wanted

    def _reserve(
        self, operation: Reserve, request: Request | None, price_version: int, overdue: bool
    ) -> Reserved | Refusal:
        account_id = operation.account_id
        if request is not None and request.state != "held":
            return Refusal(Reason.REQUEST_RESOLVED)
        if request is None:
            if (refusal := self._refusal_of_a_repeat(operation)) is not None:
                return refusal
            if operation.concurrent_requests is not None:
                running = [each for each in self._requests_of(account_id) if each.state == "held"]
                if sum(each.key_id == operation.key_id for each in running) >= operation.concurrent_requests:
                    return Refusal(Reason.TOO_MANY_AT_ONCE)
            request = Request(account_id, operation.key_id, operation.class_id, overdue=overdue)
            request.price_version = price_version
            least_nanos, want_nanos, whole_nanos = (
                self._cost_nanos(request, Usage(operation.prompt_tokens, 0, output_tokens))
                for output_tokens in (1, max(1, operation.output_tokens), operation.whole_output_tokens)
            )
            if (refusal := self._refusal_of_money(account_id, operation.key_id, least_nanos)) is not None:
                return refusal
            room_nanos = self.room_nanos(account_id, operation.key_id)
            holds_whole = WHOLE_ANSWERS_FREE * whole_nanos <= room_nanos
            want_nanos = max(want_nanos, whole_nanos) if holds_whole else want_nanos
            request.amount_nanos = min(want_nanos, room_nanos)
            self.requests[operation.request_id] = request
            if operation.claim is not None:
                claim = Claim(operation.request_id, operation.claim.body_digest)
                self.claims[account_id, operation.claim.key_digest] = claim
        price = self._versions[request.price_version][request.class_id]
        room_nanos = self.room_nanos(account_id, request.key_id)
        return Reserved(request.amount_nanos, room_nanos, request.price_version, price)

    def _refusal_of_money(self, account_id: str, key_id: str, least_nanos: int) -> Refusal | None:
        if self.net_nanos(account_id) < least_nanos:
            return Refusal(Reason.CREDITS_EXHAUSTED)
        if self.free_nanos(account_id) < least_nanos:
            return Refusal(Reason.CREDITS_HELD)
        limits = list(self._limits_of(account_id, key_id))
        over = [each for each in limits if each.nanos - each.spent_nanos < least_nanos]
        if any(each.period == "total" or each.nanos < least_nanos for each in over):
            return Refusal(Reason.SPEND_LIMIT_SPENT)
        if over:
            end = max(end_of(each.period, self.now_us) for each in over)
            return Refusal(Reason.SPEND_LIMIT_EXCEEDED, retry_after_s=(end - time_of(self.now_us)).total_seconds())
        if self.room_nanos(account_id, key_id) < least_nanos:
            return Refusal(Reason.SPEND_LIMIT_EXCEEDED, retry_after_s=1)
        return None

    def _refusal_of_a_repeat(self, operation: Reserve) -> Refusal | None:
        if operation.claim is None:
            return None
        claim = self.claims.get((operation.account_id, operation.claim.key_digest))
        if claim is None or claim.old or self.requests[claim.request_id].state == "void":
            return None
        if claim.body_digest != operation.claim.body_digest:
            return Refusal(Reason.IDEMPOTENCY_KEY_REUSED)
        return Refusal(Reason.REQUEST_REPEATED, original_request_id=claim.request_id)

    def let_days_pass(self, now_us: int) -> None:
        self.now_us = now_us
        for claim in self.claims.values():
            claim.old = True
        for request in self.requests.values():
            # One that was void before it was reserved has no deadline.
            request.overdue = bool(request.price_version)

    def let_a_month_pass(self, now_us: int) -> None:
        """Everything that runs is overdue, and swept."""
        self.let_days_pass(now_us)
        self.forget_old_claims()
        for request_id, request in self.requests.items():
            self._sweep(Sweep(request_id, request.account_id), request)

    def prune_requests(self) -> None:
        """Forgets all requests that cannot be charged any more, but not what they were charged."""
        counters = self.counters()
        kept = {each: request for each, request in self.requests.items() if request.state not in ("settled", "void")}
        for request in self.requests.values():
            if request.state in ("settled", "void"):
                key = (request.account_id, request.key_id)
                self.pruned_nanos[key] = self.pruned_nanos.get(key, 0) + request.charged_nanos
        self.requests, self.pruned_counters = kept, {}
        for counter, numbers in self.counters().items():
            counters[counter] = [before - now for before, now in zip(counters[counter], numbers, strict=True)]
        self.pruned_counters = {counter: numbers for counter, numbers in counters.items() if any(numbers)}

    def forget_old_claims(self) -> None:
        self.claims = {key: claim for key, claim in self.claims.items() if not claim.old}

    def _extend(self, operation: Extend, request: Request | None) -> Extended | Refusal:
        if request is None or request.state != "held":
            return Refusal(Reason.REQUEST_RESOLVED)
        self._note_delivery(request, operation.delivered)
        affordable_nanos = request.amount_nanos + self.room_nanos(request.account_id, request.key_id)
        granted = operation.total_nanos <= affordable_nanos
        if granted:
            request.amount_nanos = max(request.amount_nanos, operation.total_nanos)
        limits = self._limits_of(request.account_id, request.key_id)
        unspent = [each.nanos - each.spent_nanos for each in limits]
        spendable_nanos = max(request.amount_nanos, self.net_nanos(request.account_id))
        balance_nanos = min([spendable_nanos, *(max(0, nanos) for nanos in unspent)])
        return Extended(granted, operation.total_nanos, request.amount_nanos, affordable_nanos, balance_nanos)

    def _checkpoint(self, operation: Checkpoint, request: Request | None) -> None:
        if request is not None and request.state == "held":
            self._note_delivery(request, operation.delivered)

    def _settle(self, operation: Settle, request: Request | None) -> Settled | Refusal:
        if request is None or request.state == "void":
            return Refusal(Reason.NOT_FOUND, alarms=True)
        cost_nanos = self._cost_nanos(request, operation.usage)
        checkpoint_says_more = request.state == "swept" and cost_nanos < request.charged_nanos + request.loss_nanos
        if request.state != "settled":
            request.end = operation.end
            request.loss_bound_nanos = 0
        if request.state != "settled" and not checkpoint_says_more:
            due_nanos = cost_nanos - request.charged_nanos
            free_nanos = self.room_nanos(request.account_id, request.key_id, self._charged_hour_us(request))
            if request.state == "held":
                request.charge_nanos = min(due_nanos, request.amount_nanos + free_nanos)
            else:
                request.late_charge_nanos = min(due_nanos, free_nanos)
                request.late_hour_us = self._charged_hour_us(request)
            request.loss_nanos = cost_nanos - request.charged_nanos
            request.usage, request.basis = operation.usage, operation.basis
            if request.counted_hour_us is None:
                request.counted_hour_us = self._hour_us()
        request.state = "settled"
        return Settled(request.charged_nanos, request.loss_nanos)

    def _void(self, operation: Void, request: Request | None) -> None:
        if request is None:
            tombstone = Request(operation.account_id, operation.key_id, operation.class_id, "void", end=operation.end)
            self.requests[operation.request_id] = tombstone
        elif request.state == "held" and operation.due.prompt_tokens:
            self._settle(
                Settle(operation.request_id, operation.account_id, operation.due, "counted", operation.end), request
            )
        elif request.state in ("held", "swept") and request.counted_hour_us is None:
            request.state, request.end = "void", operation.end
            request.usage, request.basis = operation.lost, None
            request.loss_nanos, request.loss_bound_nanos = self._cost_nanos(request, operation.lost), 0

    def _sweep(self, operation: Sweep, request: Request | None) -> Swept:
        if request is None or request.state != "held" or not request.overdue:
            return Swept(False)
        cost_nanos = self._cost_nanos(request, request.usage)
        request.charge_nanos = min(cost_nanos, request.amount_nanos)
        request.loss_nanos = cost_nanos - request.charge_nanos
        request.loss_bound_nanos = request.amount_nanos - request.charge_nanos
        request.state, request.end = "swept", "crashed"
        request.counted_hour_us = self._hour_us() if cost_nanos else None
        return Swept(True, request.charge_nanos, request.loss_bound_nanos)

    def _charged_hour_us(self, request: Request) -> int:
        """Returns the hour of its first charge, for two days after the end of that month; the current one otherwise."""
        hour_us = request.counted_hour_us
        if hour_us is None or end_of("month", hour_us) + timedelta(days=2) <= time_of(self.now_us):
            return self._hour_us()
        return hour_us

    def _hour_us(self) -> int:
        return self.now_us - self.now_us % HOUR_US

    def _note_delivery(self, request: Request, delivered: Usage) -> None:
        if self._cost_nanos(request, delivered) > self._cost_nanos(request, request.usage):
            request.usage, request.basis = delivered, "checkpoint"

    def _cost_nanos(self, request: Request, usage: Usage) -> int:
        price = self._versions[request.price_version][request.class_id]
        uncached_tokens = usage.prompt_tokens - usage.cached_tokens
        return ceil(
            Fraction(uncached_tokens * price.input_nanos_per_million, 10**6)
            + Fraction(usage.cached_tokens * price.cached_input_nanos_per_million, 10**6)
            + Fraction(usage.completion_tokens * price.output_nanos_per_million, 10**6)
        )

    def _requests_of(self, account_id: str) -> Iterator[Request]:
        return (request for request in self.requests.values() if request.account_id == account_id)
