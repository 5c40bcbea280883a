"""Tracks accounts that repeatedly disconnect after providers read prompts, which are then not paid.

It is kept in memory, and lost with the process. Edges send an account's operations to the same replica of metering, so
that one replica sees all its clients, wherever they were connected.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from services.chassis.timing.deadlines import Clock

# Per account: older ones are dropped.
MOST_KEPT: Final = 256
# The least recently noted account is evicted first.
MOST_ACCOUNTS: Final = 10_000


class _Left(NamedTuple):
    """An unpaid prompt."""

    at_s: float
    request_id: str
    tokens: int


class UnpaidPrompts:
    def __init__(self, prompts: int, tokens: int, window_s: float, clock: Clock) -> None:
        """Takes the limit: so many unpaid prompts, with so many tokens in total, within the window. 0: never."""
        self._most_prompts = prompts
        self._most_tokens = tokens
        self._window_s = window_s
        self._clock = clock
        # Least recently noted first.
        self._by_account: OrderedDict[str, deque[_Left]] = OrderedDict()

    def record(self, account_id: str, request_id: str, tokens: int) -> None:
        """Records that a client of the account left before anything was delivered. Repeats are ignored."""
        if not self._most_prompts:
            return
        left = self._by_account.setdefault(account_id, deque(maxlen=max(MOST_KEPT, self._most_prompts)))
        if any(each.request_id == request_id for each in left):
            return
        left.append(_Left(self._clock.elapsed_s(), request_id, tokens))
        self._by_account.move_to_end(account_id)
        if len(self._by_account) > MOST_ACCOUNTS:
            self._by_account.popitem(last=False)

    def is_over_limit(self, account_id: str) -> bool:
        left = self._by_account.get(account_id)
        if left is None:
            return False
        oldest_s = self._clock.elapsed_s() - self._window_s
        while left and left[0].at_s <= oldest_s:
            left.popleft()
        if not left:
            del self._by_account[account_id]
        return len(left) >= self._most_prompts and sum(each.tokens for each in left) >= self._most_tokens
