"""What is still to come of a request that was refused before its body was read.

Most clients listen only when they have sent everything, so the rest is passed over, and not cut off; but neither for
ever nor without end.
"""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from edge.bodies import LARGEST_BODY_BYTES

# How fast the bodies of the refused are read, all together: as much as a fast line brings, and little to a processor.
PASSED_OVER_BYTES_PER_S = 128 * 1024 * 1024
# What one read brings at most.
READ_BYTES = 256 * 1024


class Unread:
    """Of one connection."""

    __slots__ = ("_due", "_flow", "_loop", "_passed_over", "_size_bytes", "_transport")

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        loop: asyncio.AbstractEventLoop,
        passed_over: "set[Unread]",
    ) -> None:
        """`passed_over` are those of all connections that are under way."""
        self._transport = transport
        self._flow = flow
        self._loop = loop
        self._passed_over = passed_over
        self._size_bytes = 0
        self._due: asyncio.TimerHandle | None = None

    def begin(self, within_s: float) -> None:
        self._due = self._loop.call_later(within_s, self._transport.close)
        self._passed_over.add(self)

    def take(self, size_bytes: int) -> None:
        if self._due is None:
            return
        self._size_bytes += size_bytes
        if self._size_bytes > LARGEST_BODY_BYTES:
            self._transport.close()
        elif not self._flow.read_paused:
            self._rest()

    def end(self) -> None:
        self._size_bytes = 0
        if self._due is not None:
            self._due.cancel()
            self._due = None
            self._passed_over.discard(self)

    def _rest(self) -> None:
        """They take turns, so that a flood of bodies keeps nobody waiting who is to be served."""
        self._flow.pause_reading()
        self._loop.call_later(len(self._passed_over) * READ_BYTES / PASSED_OVER_BYTES_PER_S, self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._flow.resume_reading()
