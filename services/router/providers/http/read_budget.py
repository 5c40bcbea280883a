"""Room for what is collected of answers before it can be passed on, shared by all that one server gives at a time.

An answer takes of it by what has come, and only beyond what any ordinary one needs. So however many large ones come at
once, the process does not outgrow its memory, and no small one ever fails for want of room.
"""

from typing import Final

from services.router.providers.base import ProviderError

BUDGET_BYTES: Final = 64 * 1024 * 1024
# Of each answer, so much is free.
FREE_BYTES: Final = 256 * 1024


class BufferBudget:
    def __init__(self, most_bytes: int = BUDGET_BYTES) -> None:
        self.left_bytes = most_bytes


class AnswerBuffer:
    """Of one answer."""

    __slots__ = ("_budget", "_taken_bytes")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._taken_bytes = 0

    def reserve(self, held_bytes: int) -> None:
        """So much is held by now, in all."""
        more_bytes = max(0, held_bytes - FREE_BYTES) - self._taken_bytes
        if more_bytes > self._budget.left_bytes:
            raise ProviderError("sent more than there is room for")
        self._budget.left_bytes -= more_bytes
        self._taken_bytes += more_bytes

    def release(self) -> None:
        self._budget.left_bytes += self._taken_bytes
        self._taken_bytes = 0
