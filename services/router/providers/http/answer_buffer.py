"""A memory budget for partially received answers, shared by all answers of one server.

An answer draws on it by what it has received beyond what an ordinary one needs. So concurrent large answers cannot
exhaust the process's memory, and a small answer never fails for lack of budget.
"""

from typing import Final

from services.router.providers.base import ProviderError

BUDGET_BYTES: Final = 64 * 1024 * 1024
# Not charged to the budget, per answer.
FREE_BYTES: Final = 256 * 1024


class BufferBudget:
    def __init__(self, most_bytes: int = BUDGET_BYTES) -> None:
        self.left_bytes = most_bytes


class AnswerBuffer:
    """The buffer space of one answer."""

    __slots__ = ("_budget", "taken_bytes")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self.taken_bytes = 0

    def reserve(self, held_bytes: int) -> None:
        """Adjusts the reservation to the bytes now held in total."""
        if held_bytes <= FREE_BYTES and not self.taken_bytes:
            return
        more_bytes = max(0, held_bytes - FREE_BYTES) - self.taken_bytes
        if more_bytes > self._budget.left_bytes:
            raise ProviderError("sent more than there is room for")
        self._budget.left_bytes -= more_bytes
        self.taken_bytes += more_bytes

    def release(self) -> None:
        self._budget.left_bytes += self.taken_bytes
        self.taken_bytes = 0
