"""Accounts whose rows somebody else keeps locked: what waits for them waits apart, so that nobody waits with it.

Another replica has an account's row for some milliseconds, and is waited for. Whoever has it for longer is a stranger:
a person in a database shell, a backup tool, a session that was left open.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from services.chassis.database.database import LockTimeout

ItemT = TypeVar("ItemT")

# An account for which nothing waits any more is remembered, so that whoever asks next does not make others wait again.
KNOWN_MOST: Final = 10_000


class AccountLocked(LockTimeout):
    """Nothing of the operation was written: a reason to try again."""

    def __init__(self) -> None:
        super().__init__("The account is locked right now. Please retry.")


class LockedAccounts(Generic[ItemT]):
    def __init__(self, patience_s: float) -> None:
        """`patience_s` is how long something waits for an account."""
        self._patience_s = patience_s
        # By account: what waits for it, and until when, in the order in which it came.
        self._queues: dict[str, deque[tuple[float, ItemT]]] = {}
        self.waiting = 0

    def __contains__(self, account_id: str) -> bool:
        return account_id in self._queues

    @property
    def count(self) -> int:
        """Accounts that something waits for."""
        return sum(bool(queue) for queue in self._queues.values())

    def add(self, account_id: str, item: ItemT, now_s: float, *, waits: bool = True) -> None:
        """What does not wait is tried once if it is the first, and is late then."""
        queue = self._queues.get(account_id)
        if queue is None:
            self._forget_idle()
            queue = self._queues[account_id] = deque()
        queue.append((now_s + self._patience_s if waits else now_s, item))
        self.waiting += 1

    def first_of_each(self, most: int) -> list[ItemT]:
        """To be tried: if it can be written, so can what comes after it. It stays where it is."""
        return [queue[0][1] for _, queue in islice(self._busy(), most)]

    def keep(self, account_id: str) -> None:
        """It is locked still. Others are tried before it is tried again."""
        self._queues[account_id] = self._queues.pop(account_id)

    def free(self, account_id: str) -> list[ItemT]:
        """It is no longer locked: gives everything that waits for it."""
        queue = self._queues.pop(account_id)
        self.waiting -= len(queue)
        return [item for _, item in queue]

    def take_late(self, now_s: float) -> list[ItemT]:
        """What has waited for long enough."""
        late: list[ItemT] = []
        for account_id, queue in self._busy():
            late += [item for until_s, item in queue if until_s <= now_s]
            self._queues[account_id] = deque(entry for entry in queue if entry[0] > now_s)
        self.waiting -= len(late)
        return late

    def _busy(self) -> Iterator[tuple[str, deque[tuple[float, ItemT]]]]:
        return ((account_id, queue) for account_id, queue in self._queues.items() if queue)

    def _forget_idle(self) -> None:
        if len(self._queues) >= KNOWN_MOST:
            idle = next((account_id for account_id, queue in self._queues.items() if not queue), None)
            if idle is not None:
                del self._queues[idle]
