"""Divides something that a process has only so much of between accounts: memory for prompts, or places for chats.

An account may hold at most twice what it leaves free; its first request needs only to fit. So one account alone may
hold two thirds of it all, and however many there are, some is free for the next. Nothing waits here: what does not fit
is refused, and the client may retry.

Pure: no task, no timer, no lock. One event loop uses it.
"""

from types import TracebackType
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

SHARE_OF_FREE: Final = 2
RETRY_AFTER_S: Final = 2.0


class FairBudget:
    def __init__(self, what: str, capacity: int, *, uncharged: int = 0) -> None:
        """Creates a budget; `what` says in a refusal what is lacking. The first `uncharged` units of each holding are
        not charged, so that small ones cost no more than a comparison and are never refused."""
        self.capacity = capacity
        self.used = 0
        self.refused = 0
        self.uncharged = uncharged
        self._what = what
        # Only accounts that hold some.
        self._used_by_account: dict[str, int] = {}

    def hold(self, account_id: str, amount: int = 0) -> "BudgetShare":
        """Returns a holding of this size, which may grow: `with budget.hold(account_id) as holding: …`."""
        holding = BudgetShare(self, account_id)
        if amount > self.uncharged:
            holding.grow_to(amount)
        return holding

    @property
    def is_half_free(self) -> bool:
        return 2 * self.used <= self.capacity

    def check(self, account_id: str, amount: int, held: int) -> int:
        """Returns what an account would hold if one of its holdings grew by so much; raises SATURATED if that is too
        much."""
        own = self._used_by_account.get(account_id, 0)
        free = self.capacity - self.used - amount
        if free < 0 or (own + amount > SHARE_OF_FREE * free and own > held):
            self.refused += 1
            raise LegatoError(Reason.SATURATED, Sentence("share_used_up", what=self._what), retry_after_s=RETRY_AFTER_S)
        return own + amount

    def take(self, account_id: str, amount: int, held: int) -> None:
        """Charges an account; only holdings call it."""
        self._used_by_account[account_id] = self.check(account_id, amount, held)
        self.used += amount

    def give_back(self, account_id: str, amount: int) -> None:
        """Undoes a charge; only holdings call it."""
        self.used -= amount
        own = self._used_by_account[account_id] - amount
        if own:
            self._used_by_account[account_id] = own
        else:
            del self._used_by_account[account_id]


class BudgetShare:
    """The part of a budget that one request holds. Releasing it more than once has no effect."""

    __slots__ = ("_account_id", "_budget", "charged")

    def __init__(self, budget: FairBudget, account_id: str) -> None:
        self._budget = budget
        self._account_id = account_id
        self.charged = 0

    def grow_to(self, amount: int) -> None:
        """Holds so much in all; raises SATURATED, and then holds what it held before."""
        more = amount - self._budget.uncharged - self.charged
        if more > 0:
            self._budget.take(self._account_id, more, self.charged)
            self.charged += more

    @property
    def may_stay(self) -> bool:
        """Returns whether it may be kept for longer than is necessary, without others being refused for it."""
        return not self.charged or self._budget.is_half_free

    def check(self, amount: int) -> None:
        """Raises SATURATED if it could not grow to so much now."""
        if amount > self._budget.uncharged + self.charged:
            self._budget.check(self._account_id, amount - self._budget.uncharged - self.charged, self.charged)

    def release(self) -> None:
        if self.charged:
            self._budget.give_back(self._account_id, self.charged)
            self.charged = 0

    def __enter__(self) -> "BudgetShare":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.charged:
            self.release()
