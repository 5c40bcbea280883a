"""Limits what clients may cost: idle timeouts, stalled reads, the pace of a body, and the number of connections."""

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import Final

from edge.http.request import Cycle
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Count
from services.chassis.timing.deadlines import Clock

# The timeout of a connection, which waits for one thing after the other.
#
# A timer of the event loop costs more than reading a small request, and nearly none of them expires. So each
# connection has one timer, which is left to run; when it expires, it checks whether the deadline has really passed.


class IdleTimer:
    __slots__ = ("_due_s", "_loop", "_otherwise", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due_s = 0.0
        self._otherwise: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, within_s: float, otherwise: Callable[[], object]) -> None:
        """Sets a deadline, replacing the previous one."""
        self._due_s = self._loop.time() + within_s
        self._otherwise = otherwise
        if self._timer is not None:
            if self._timer.when() <= self._due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due_s, self._look)

    def is_for(self, otherwise: Callable[[], object]) -> bool:
        return self._otherwise == otherwise

    def clear(self) -> None:
        """Cancels the wait."""
        self._otherwise = None

    def close(self) -> None:
        self._otherwise = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._otherwise is None:
            return
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._look)
            return
        otherwise, self._otherwise = self._otherwise, None
        otherwise()


class StalledReader:
    """Closes one connection whose client has read nothing for a while."""

    __slots__ = ("_due", "_loop", "_transport", "_within_s")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, within_s: float) -> None:
        self._transport = transport
        self._loop = loop
        self._within_s = within_s
        self._due: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """Starts the timeout."""
        unsent_bytes = self._transport.get_write_buffer_size()
        self._due = self._loop.call_later(self._within_s, self._close_unless_read, unsent_bytes)

    def stop(self) -> None:
        """Cancels the timeout."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _close_unless_read(self, unsent_bytes: int) -> None:
        if self._transport.get_write_buffer_size() < unsent_bytes:
            # The client reads slowly.
            self.expect()
        else:
            self._transport.abort()


# Throttles the reading of requests by the CPU time they cost.
#
# Each piece of a body costs about as much as a kilobyte of it, however small it is. So a body of very many pieces is
# read in slices, between which its connection pauses for as long as its pieces cost: all such connections share a
# small part of a CPU. A body in pieces of an ordinary size never waits.

# Bytes parsed of a connection at once: with the smallest pieces, this takes a few milliseconds.
SLICE_BYTES: Final = 16 * 1024
# A piece of an ordinary size is free, and so are some smaller ones of each request: they cost as much as the request
# itself.
ORDINARY_PIECE_BYTES: Final = 256
FREE_PIECES: Final = 512
# Shared by all connections.
PIECES_PER_S: Final = 50_000
# A shorter pause would cost more than it saves; it is added to the next.
SHORTEST_REST_S: Final = 0.001


class BodyPacer:
    """Paces one connection."""

    __slots__ = ("_free_pieces", "_owed_s", "_owing")

    def __init__(self, owing: "set[BodyPacer]") -> None:
        """Takes `owing`, the set of all connections' pacers whose free pieces are used up."""
        self._owing = owing
        self._free_pieces = 0
        self._owed_s = 0.0

    def begin(self) -> None:
        """Starts a request, after the last was answered."""
        self._free_pieces = FREE_PIECES
        self._owing.discard(self)

    def charge(self, pieces: int, size_bytes: int, owed_s: float = 0.0) -> float:
        """Charges what was read and returns how long to pause. `owed_s` is added to that."""
        self._owed_s += owed_s
        # The end of each slice splits a piece in two.
        pieces -= 1 + size_bytes // ORDINARY_PIECE_BYTES
        if pieces <= self._free_pieces:
            self._free_pieces -= max(0, pieces)
        else:
            self._owing.add(self)
            self._owed_s += len(self._owing) * (pieces - self._free_pieces) / PIECES_PER_S
            self._free_pieces = 0
        if self._owed_s < SHORTEST_REST_S:
            return 0.0
        rest_s, self._owed_s = self._owed_s, 0.0
        return rest_s

    def close(self) -> None:
        self._owing.discard(self)


# The limit on an edge's connections: fewer than the process has file descriptors, as it needs others beside them.
#
# When it is reached, the connection that has been idle longest is closed for the next one. A connection that is being
# answered is never closed for it.

MOST_CONNECTIONS: Final = 10_000
# The other descriptors are for services, databases and files.
DESCRIPTORS_SHARE: Final = 0.75
TOLD_EACH_S: Final = 60.0


def most_connections(asked: int) -> int:
    """Returns the configured limit, capped by the descriptor limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return asked
    return min(asked, int(soft * DESCRIPTORS_SHARE))


class ConnectionLimit:
    def __init__(self, most: int, clock: Clock, log: Log) -> None:
        self.most = most
        self.open = 0
        self.idle_closed = Count()
        self.refused = Count()
        self._clock = clock
        self._log = log
        self._told_at_s: float | None = None
        # The connection that has been idle longest comes first.
        self._waiting: dict[asyncio.Transport, Callable[[], None]] = {}

    def add(self) -> bool:
        """Counts a connection until `remove`, and returns whether there is room for it."""
        self.open += 1
        if self.open <= self.most:
            return True
        self.note_full()
        if self._waiting:
            self.idle_closed.value += 1
            transport = next(iter(self._waiting))
            self._waiting.pop(transport)()
            return True
        self.refused.value += 1
        return False

    def remove(self, transport: asyncio.Transport) -> None:
        self.open -= 1
        self._waiting.pop(transport, None)

    def wait(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        """Marks a connection as idle: `close` may be called to make room."""
        self._waiting.pop(transport, None)
        self._waiting[transport] = close

    def work(self, transport: asyncio.Transport) -> None:
        """Marks a connection as busy."""
        self._waiting.pop(transport, None)

    def note_full(self) -> None:
        """Logs that the limit is reached, at most once a minute."""
        now_s = self._clock.elapsed_s()
        if self._told_at_s is None or now_s - self._told_at_s >= TOLD_EACH_S:
            self._told_at_s = now_s
            self._log.warning("connections.full", reason=f"{self.most} are open")


# Half-closed connections: a client that sends no more waits for its answer, or has left.
#
# On the wire both look the same until something is sent: the peer that has left resets the connection. So the edge
# sends a probe that any client ignores, and then checks the state of the socket. Where that cannot be read, the
# client counts as gone.

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
        self._cycle: Cycle | None = None
        self._pause_s = FIRST_LOOK_S
        self._timer: asyncio.TimerHandle | None = None
        self.is_so = False

    def begin(self, cycle: Cycle) -> bool:
        """Starts probing for the request being answered. Returns False if its client has disconnected or cannot be
        probed."""
        if not cycle.can_probe or self._is_reset() is not False:
            return False
        self.follow(cycle)
        return True

    def follow(self, cycle: Cycle) -> None:
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
