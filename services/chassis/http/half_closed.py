"""Half-closed connections: a client that sends no more waits for its answer, or has left.

On the wire both look the same until something is sent: the peer that has left resets the connection. So the server
sends a probe that any client ignores, and then checks the state of the socket. Where that cannot be read, the client
counts as gone.
"""

import asyncio
import socket
from typing import Final

from services.chassis.http.response_writer import ResponseWriter

# A sooner answer needs no probe.
FIRST_LOOK_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
# The kernel's state of a TCP connection that was reset.
_TCP_CLOSE: Final = 7


class HalfClosed:
    """Probes one connection."""

    __slots__ = ("_cycle", "_loop", "_pause_s", "_timer", "_transport", "is_so")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._cycle: ResponseWriter | None = None
        self._pause_s = FIRST_LOOK_S
        self._timer: asyncio.TimerHandle | None = None
        self.is_so = False

    def begin(self, cycle: ResponseWriter) -> bool:
        """Starts probing for the request being answered. Returns False if its client has disconnected or cannot be
        probed."""
        if not cycle.can_probe or self._is_reset() is not False:
            return False
        self.follow(cycle)
        return True

    def follow(self, cycle: ResponseWriter) -> None:
        """Probes for the connection's next request."""
        self.is_so = True
        self.stop()
        self._cycle = cycle
        self._pause_s = FIRST_LOOK_S
        if cycle.response_started:
            cycle.probe()
        self._timer = self._loop.call_later(self._pause_s, self._look, not cycle.response_started)

    def stop(self) -> None:
        self._cycle = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, is_due: bool) -> None:
        """Checks the socket. `is_due` says that a probe should be sent, for the next check."""
        cycle = self._cycle
        if cycle is None or cycle.response_complete or self._transport.is_closing():
            return
        if self._is_reset() is not False:
            self._transport.abort()
            return
        if is_due and not self._transport.get_write_buffer_size():
            cycle.probe()
        if not is_due:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        is_due_then = self._pause_s == LONGEST_PAUSE_S
        self._timer = self._loop.call_later(self._pause_s, self._look, is_due_then)

    def _is_reset(self) -> bool | None:
        """Returns None if that is unknown."""
        connection = self._transport.get_extra_info("socket")
        try:
            state: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except (AttributeError, OSError):
            return None
        return state[0] == _TCP_CLOSE
