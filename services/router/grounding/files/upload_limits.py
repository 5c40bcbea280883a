"""Limits the documents that are being added at once: by account, in all, and by the space they take."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.fair_budget import BudgetShare, FairBudget

# From the first byte of a document until it can be searched: those that are received, wait, are read or indexed.
BY_ACCOUNT_MOST: Final = 4
IN_ALL_MOST: Final = 64
RETRY_AFTER_S: Final = 10.0


class UploadLimits:
    def __init__(self, bytes_most: int) -> None:
        self._places = FairBudget("A place for another document", IN_ALL_MOST)
        self._space = FairBudget("Space for another document", bytes_most)
        self._running: Counter[str] = Counter()

    @contextmanager
    def admit(self, account_id: str, announced_bytes: int) -> Iterator[BudgetShare]:
        """Takes a place and space for a document, both given back at the end of the context. The space grows with what
        is received beyond what was announced."""
        running = self._running[account_id]
        if running >= BY_ACCOUNT_MOST:
            raise LegatoError(
                Reason.TOO_MANY_AT_ONCE,
                f"The account is adding {running} documents already. Please retry when one of them is ready.",
                param="document",
                retry_after_s=RETRY_AFTER_S,
            )
        with self._places.hold(account_id, 1), self._space.hold(account_id, announced_bytes) as space:
            self._running[account_id] += 1
            try:
                yield space
            finally:
                self._running[account_id] -= 1
                if not self._running[account_id]:
                    del self._running[account_id]
