"""A retry budget: limits concurrent retries on other models, since retrying makes an outage worse."""

from types import TracebackType
from typing import Final

# Share of the chats that wait for the first piece of an answer.
RETRY_SHARE: Final = 0.2
LEAST_RETRIES: Final = 3


class RetryBudget:
    def __init__(self) -> None:
        # Entered by each chat until its answer begins.
        self.waiting = _Inside()
        self.retry = _Inside()

    @property
    def is_spent(self) -> bool:
        return self.retry.count >= max(LEAST_RETRIES, RETRY_SHARE * self.waiting.count)


class _Inside:
    """A context manager that counts how many are inside it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.count -= 1
