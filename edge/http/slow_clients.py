"""Limits what a slow or stalled client may cost: idle timeout, stalled reads, pace of a body."""

import asyncio
from collections.abc import Callable
from typing import Final

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
