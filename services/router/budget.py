"""How many chats may be asked once more elsewhere, at a time: where everything fails, asking again makes it worse."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Of the chats that wait for the first piece of an answer.
RETRY_SHARE: Final = 0.2
LEAST_RETRIES: Final = 3


class RetryBudget:
    def __init__(self) -> None:
        self._waiting = 0
        self._retries = 0

    @property
    def is_spent(self) -> bool:
        return self._retries >= max(LEAST_RETRIES, RETRY_SHARE * self._waiting)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around all that is done for one chat until its answer begins."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    @contextmanager
    def retry(self) -> Iterator[None]:
        self._retries += 1
        try:
            yield
        finally:
            self._retries -= 1
