"""What is still to come of a request that was refused before its body was read.

Most clients listen only when they have sent everything, so the rest is passed over, and not cut off; but neither for
ever nor without end, and not at any price.
"""

import asyncio

from edge.wire.body_reader import LARGEST_BODY_BYTES

# How fast the bodies of the refused are read, all together: as much as a fast line brings, and little to a processor.
PASSED_OVER_BYTES_PER_S = 128 * 1024 * 1024
# As they come, with what frames them.
MOST_PASSED_OVER_BYTES = LARGEST_BODY_BYTES + 1024 * 1024
# A body of the largest size in pieces of a kilobyte.
MOST_PASSED_OVER_PIECES = 16 * 1024


class UnreadBody:
    """Of one connection."""

    __slots__ = ("_due", "_loop", "_passed_over", "_pieces", "_size_bytes", "_transport")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, passed_over: "set[UnreadBody]"
    ) -> None:
        """`passed_over` are those of all connections that are under way."""
        self._transport = transport
        self._loop = loop
        self._passed_over = passed_over
        self._size_bytes = 0
        self._pieces = 0
        self._due: asyncio.TimerHandle | None = None

    @property
    def is_under_way(self) -> bool:
        return self._due is not None

    def start(self, within_s: float) -> None:
        self._due = self._loop.call_later(within_s, self._transport.close)
        self._passed_over.add(self)

    def discard(self, size_bytes: int, pieces: int) -> float:
        """How long to rest: they take turns, so that a flood of bodies keeps nobody waiting who is to be served."""
        self._size_bytes += size_bytes
        self._pieces += pieces
        if self._size_bytes > MOST_PASSED_OVER_BYTES or self._pieces > MOST_PASSED_OVER_PIECES:
            self._transport.close()
            return 0.0
        return len(self._passed_over) * size_bytes / PASSED_OVER_BYTES_PER_S

    def stop(self) -> None:
        self._size_bytes = self._pieces = 0
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self._passed_over.discard(self)
