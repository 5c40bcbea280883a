"""Limits the documents that are being added at once: by account, in all, and by the space they take."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from services.chassis.errors import LegatoError, Reason

# From the first byte of a document until it can be searched: those that are received, wait, are read or indexed.
BY_ACCOUNT_MOST: Final = 4
IN_ALL_MOST: Final = 64
# Where less than half of the space or of the places is left, an account adds one document at a time.
BY_ACCOUNT_WHEN_SCARCE: Final = 1
RETRY_AFTER_S: Final = 10.0

# Is told the bytes received; raises if they are more than announced, and there is no space for them.
OnReceived = Callable[[int], None]


class UploadLimits:
    def __init__(self, bytes_most: int) -> None:
        self._bytes_most = bytes_most
        self._bytes = 0
        self._running: Counter[str] = Counter()

    @contextmanager
    def admit(self, account_id: str, announced_bytes: int) -> Iterator[OnReceived]:
        """Takes a place and the space for a document, both given back at the end of the context."""
        self._require_place(account_id)
        reserved_bytes = 0

        def reserve(total_bytes: int) -> None:
            nonlocal reserved_bytes
            more_bytes = max(0, total_bytes - reserved_bytes)
            if self._bytes + more_bytes > self._bytes_most:
                raise _full()
            self._bytes += more_bytes
            reserved_bytes += more_bytes

        reserve(announced_bytes)
        self._running[account_id] += 1
        try:
            yield reserve
        finally:
            self._bytes -= reserved_bytes
            self._running[account_id] -= 1
            if not self._running[account_id]:
                del self._running[account_id]

    def _require_place(self, account_id: str) -> None:
        total = self._running.total()
        if total >= IN_ALL_MOST:
            raise _full()
        is_scarce = 2 * total >= IN_ALL_MOST or 2 * self._bytes >= self._bytes_most
        running = self._running[account_id]
        if running >= BY_ACCOUNT_MOST:
            raise LegatoError(
                Reason.TOO_MANY_AT_ONCE,
                f"The account is adding {running} documents already. Please retry when one of them is ready.",
                param="document",
                retry_after_s=RETRY_AFTER_S,
            )
        if is_scarce and running >= BY_ACCOUNT_WHEN_SCARCE:
            raise _full()


def _full() -> LegatoError:
    return LegatoError(
        Reason.SATURATED,
        "Too many documents are being added right now. Please retry in a minute.",
        param="document",
        retry_after_s=RETRY_AFTER_S,
    )
