"""Handles bytes that arrive before anybody reads them: pipelined requests, unread bodies, backpressure."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from edge.wire.requests import LARGEST_BODY_BYTES

# Drains the unread body of a refused request, bounded in bytes, pieces and time.
#
# Most clients read the answer only after they have sent everything, so the rest is discarded and the connection is
# not closed at once.

# Rate at which all refused bodies together are read: as fast as a fast line, at little CPU time.
PASSED_OVER_BYTES_PER_S = 128 * 1024 * 1024
# Counted with chunk framing.
MOST_PASSED_OVER_BYTES = LARGEST_BODY_BYTES + 1024 * 1024
# The number of one-kilobyte pieces in the largest body.
MOST_PASSED_OVER_PIECES = 16 * 1024


class UnreadBody:
    """Drains one connection."""

    __slots__ = ("_due", "_loop", "_passed_over", "_pieces", "_size_bytes", "_transport", "is_under_way")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, passed_over: "set[UnreadBody]"
    ) -> None:
        """Takes `passed_over`, the set of all connections that drain a body."""
        self._transport = transport
        self._loop = loop
        self._passed_over = passed_over
        self._size_bytes = 0
        self._pieces = 0
        self._due: asyncio.TimerHandle | None = None
        self.is_under_way = False

    def start(self, within_s: float) -> None:
        self._due = self._loop.call_later(within_s, self._transport.close)
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
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self.is_under_way = False
            self._passed_over.discard(self)


# Buffers the requests that a client pipelines, which means that it sends them before it has the last answer.
#
# Reading goes on while a request is answered, since otherwise a disconnect would not be noticed. What comes meanwhile
# is buffered and not parsed before its turn, since nothing that is wrong with it concerns the answer that is under
# way.

# Few clients pipeline, and those have to expect that the connection is closed before their turn.
LARGEST_PIPELINED_BYTES = 64 * 1024


class PipelinedData:
    """The buffer of a connection."""

    __slots__ = ("_held", "size_bytes")

    def __init__(self) -> None:
        self._held = bytearray()
        # Size of all that arrived, held or not.
        self.size_bytes = 0

    def add(self, data: bytes) -> bool:
        """Buffers data and returns True, or drops the whole buffer and returns False if it is too large."""
        self.size_bytes += len(data)
        if self.size_bytes > LARGEST_PIPELINED_BYTES:
            self._held.clear()
            return False
        self._held += data
        return True

    def pop_all(self) -> bytes:
        """Returns and clears the buffer."""
        held = bytes(self._held)
        self._held.clear()
        self.size_bytes = 0
        return held


class PausableFlowControl(FlowControl):
    """Keeps reading paused during a rest; the end of the rest resumes it, whatever paused it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_resting = False

    def rest(self) -> None:
        self._is_resting = True
        self.pause_reading()

    def end_rest(self) -> None:
        self._is_resting = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_resting:
            super().resume_reading()
