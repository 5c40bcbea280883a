"""Queues operations of accounts whose rows another session keeps locked, apart from all others.

Another replica locks an account's row for some milliseconds, and is waited for. A longer lock is held by an outsider: a
person in a database shell, a backup tool, a session that was left open.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

ItemT = TypeVar("ItemT")

# Accounts without waiting operations stay known, so that the next operation does not delay others again.
KNOWN_MOST: Final = 10_000


class LockedAccounts(Generic[ItemT]):
    def __init__(self, wait_s: float) -> None:
        """Keeps an item for at most `wait_s`."""
        self._wait_s = wait_s
        # By account: items and their deadlines, in order of arrival.
        self.queues: dict[str, deque[tuple[float, ItemT]]] = {}
        self.waiting = 0

    @property
    def count(self) -> int:
        """The number of accounts with waiting items."""
        return sum(bool(queue) for queue in self.queues.values())

    def add(self, account_id: str, item: ItemT, now_s: float, *, waits: bool = True) -> None:
        """Queues an item; with `waits` false, it is tried once at most, if it is the first."""
        queue = self.queues.get(account_id)
        if queue is None:
            self._forget_idle()
            queue = self.queues[account_id] = deque()
        queue.append((now_s + self._wait_s if waits else now_s, item))
        self.waiting += 1

    def first_of_each(self, most: int) -> list[ItemT]:
        """Returns the first item of each account to retry; if it can be written, so can the rest. It stays queued."""
        return [queue[0][1] for _, queue in islice(self._busy(), most)]

    def keep(self, account_id: str) -> None:
        """Moves a still locked account behind the others."""
        self.queues[account_id] = self.queues.pop(account_id)

    def free(self, account_id: str) -> list[ItemT]:
        """Removes an unlocked account and returns its items."""
        queue = self.queues.pop(account_id)
        self.waiting -= len(queue)
        return [item for _, item in queue]

    def take_late(self, now_s: float) -> list[ItemT]:
        """Removes and returns the items whose deadline has passed."""
        late: list[ItemT] = []
        for account_id, queue in self._busy():
            late += [item for until_s, item in queue if until_s <= now_s]
            self.queues[account_id] = deque(entry for entry in queue if entry[0] > now_s)
        self.waiting -= len(late)
        return late

    def _busy(self) -> Iterator[tuple[str, deque[tuple[float, ItemT]]]]:
        return ((account_id, queue) for account_id, queue in self.queues.items() if queue)

    def _forget_idle(self) -> None:
        if len(self.queues) >= KNOWN_MOST:
            idle = next((account_id for account_id, queue in self.queues.items() if not queue), None)
            if idle is not None:
                del self.queues[idle]
