"""What each worker runs next: the tests of one module at a time, and all of a folder where others have enough to do.

Folders whose tests share a service are begun first, each by one worker, since each further one would start that service
again. Modules of other folders fill the time that those wait: the last worker takes only them while there are any.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Share:
    """Tests of one module, by their places in the list of all."""

    places: tuple[int, ...]
    # Those of the same folder share what is slow to start; None if there is nothing of the kind.
    folder: str | None


class Shares:
    def __init__(self, shares: Sequence[Share], workers: int) -> None:
        """The order of `shares` is that in which they begin."""
        self._folders: Final[dict[str, deque[Share]]] = defaultdict(deque)
        self._others: Final[deque[Share]] = deque()
        for share in shares:
            queue = self._others if share.folder is None else self._folders[share.folder]
            queue.append(share)
        self._busy_folders: Final[dict[int, str]] = {}
        self._last_worker: Final = workers - 1

    def take(self, worker: int) -> Share | None:
        """Returns what a worker runs next; None if nothing is left."""
        if self._others and worker == self._last_worker:
            return self._others.popleft()
        if self._left_of(self._busy_folders.get(worker)):
            return self._folders[self._busy_folders[worker]].popleft()
        self._busy_folders.pop(worker, None)
        for folder in self._folders:
            if folder not in self._busy_folders.values() and self._left_of(folder):
                self._busy_folders[worker] = folder
                return self._folders[folder].popleft()
        return self._others.popleft() if self._others else self._help(worker)

    def give_back(self, worker: int, places: Sequence[int], folder: str | None) -> None:
        """Has another worker run what one that ended has not run."""
        self._busy_folders.pop(worker, None)
        if places:
            queue = self._others if folder is None else self._folders[folder]
            queue.appendleft(Share(tuple(places), folder))

    def _left_of(self, folder: str | None) -> int:
        return 0 if folder is None else len(self._folders[folder])

    def _help(self, worker: int) -> Share | None:
        """Takes over from the worker whose folder has most left."""
        folder = max(self._folders, key=self._left_of, default=None)
        if folder is None or not self._left_of(folder):
            return None
        self._busy_folders[worker] = folder
        return self._folders[folder].pop()
