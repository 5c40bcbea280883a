"""Drains the unread body of a refused request, bounded in bytes, pieces and time.

Most clients read the answer only after they have sent everything, so the rest is discarded and the connection is not
closed at once.
"""

import asyncio

# Rate at which all refused bodies together are read: as fast as a fast line, at little CPU time.
PASSED_OVER_BYTES_PER_S = 128 * 1024 * 1024
# Counted with chunk framing: the largest body of a chat, and a megabyte.
MOST_PASSED_OVER_BYTES = 17 * 1024 * 1024
# The number of one-kilobyte pieces in the largest body.
MOST_PASSED_OVER_PIECES = 16 * 1024
UNREAD_TIMEOUT_S = 60.0


class UnreadBody:
    """Drains one connection."""

    __slots__ = ("_passed_over", "_pieces", "_size_bytes", "_transport", "is_under_way")

    def __init__(self, transport: asyncio.Transport, passed_over: "set[UnreadBody]") -> None:
        """Takes `passed_over`, the set of all connections that drain a body."""
        self._transport = transport
        self._passed_over = passed_over
        self._size_bytes = 0
        self._pieces = 0
        self.is_under_way = False

    def start(self) -> None:
        self.is_under_way = True
        self._passed_over.add(self)

    def discard(self, size_bytes: int, pieces: int) -> float:
        """Counts what was discarded and returns how long to pause, so that a flood of bodies delays no good request."""
        self._size_bytes += size_bytes
        self._pieces += pieces
        if self._size_bytes > MOST_PASSED_OVER_BYTES or self._pieces > MOST_PASSED_OVER_PIECES:
            self._transport.close()
            return 0.0
        return len(self._passed_over) * size_bytes / PASSED_OVER_BYTES_PER_S

    def stop(self) -> None:
        self._size_bytes = self._pieces = 0
        self.is_under_way = False
        self._passed_over.discard(self)
