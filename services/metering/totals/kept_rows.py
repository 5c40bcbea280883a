"""Keeps what was read for reports, up to a number of rows; what was used longest ago is forgotten first."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class KeptRows(Generic[KeyT, ValueT]):
    """Is used by several threads."""

    def __init__(self, rows_most: int) -> None:
        self._rows_most = rows_most
        self._rows = 0
        # With the number of rows; the one that was used last is the last.
        self._kept: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: KeyT) -> ValueT | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: KeyT, value: ValueT, rows: int) -> None:
        with self._lock:
            self._rows += rows + 1 - self._rows_of(key)
            self._kept[key] = (value, rows + 1)
            self._kept.move_to_end(key)
            while self._rows > self._rows_most:
                _, (_, forgotten) = self._kept.popitem(last=False)
                self._rows -= forgotten

    def items(self) -> list[tuple[KeyT, ValueT]]:
        """Returns them, the one that was used last at the end."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._kept.items()]

    def _rows_of(self, key: KeyT) -> int:
        found = self._kept.get(key)
        return 0 if found is None else found[1]
