"""Which accounts make a habit of leaving: of prompts that providers read, and that nobody paid for.

Kept in memory, and forgotten with the process. Edges tell what concerns an account to the same replica of metering, so
that one knows of all that its clients did, wherever they were connected.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.chassis.timing.clock import Clock

# Of an account: older ones are forgotten.
MOST_KEPT: Final = 256
# The one that was noted longest ago is forgotten first.
MOST_ACCOUNTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class UnpaidLimit:
    """So many unpaid prompts, which together have so many tokens, within so long. None at all: nobody has it."""

    prompts: int
    tokens: int
    window_s: float


class _Left(NamedTuple):
    """A prompt that nobody paid for."""

    at_s: float
    request_id: str
    tokens: int


class UnpaidPrompts:
    def __init__(self, unpaid_limit: UnpaidLimit, clock: Clock) -> None:
        self._unpaid_limit = unpaid_limit
        self._clock = clock
        # The oldest first.
        self._by_account: OrderedDict[str, deque[_Left]] = OrderedDict()

    def note(self, account_id: str, request_id: str, tokens: int) -> None:
        """A client of the account has left before anything was delivered. That may be told more than once."""
        if not self._unpaid_limit.prompts:
            return
        left = self._by_account.setdefault(account_id, deque(maxlen=max(MOST_KEPT, self._unpaid_limit.prompts)))
        if any(each.request_id == request_id for each in left):
            return
        left.append(_Left(self._clock.elapsed_s(), request_id, tokens))
        self._by_account.move_to_end(account_id)
        if len(self._by_account) > MOST_ACCOUNTS:
            self._by_account.popitem(last=False)

    def are_habit_of(self, account_id: str) -> bool:
        left = self._by_account.get(account_id)
        if left is None:
            return False
        oldest_s = self._clock.elapsed_s() - self._unpaid_limit.window_s
        while left and left[0].at_s <= oldest_s:
            left.popleft()
        if not left:
            del self._by_account[account_id]
        return (
            len(left) >= self._unpaid_limit.prompts and sum(each.tokens for each in left) >= self._unpaid_limit.tokens
        )
