"""Reads many connections in rounds, so that one wakeup of the event loop serves all chunks of some milliseconds.

A model pauses longer between two tokens than a read takes. If the event loop watches each connection, every chunk wakes
the process by itself, with cold caches. Here the connections are in an epoll set of their own, which is polled when a
round is due: some milliseconds after the previous one, or at once if that was earlier.
"""

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

# How long after a round the next one follows. With many connections it is longer, so that a read brings several chunks:
# where a process has little time to spare, their number is what makes all of them late.
ROUND_S: Final = 0.008
ROUND_PER_CONNECTION_S: Final = 0.0001
LONGEST_ROUND_S: Final = 0.02
# With few it is longer, too: a round costs as much as eight of its chunks do, and few are quickly read and delivered.
FEW_CONNECTIONS_ROUND_S: Final = 0.0125
# With fewer connections, a round would hardly ever bring more than one chunk.
LEAST_CONNECTIONS: Final = 4
# Read at once: all that the kernel buffers.
READ_BYTES: Final = 64 * 1024
# In place of the number of an open file.
NO_FILE: Final = -1


class ReadRounds:
    """The rounds of one event loop."""

    def __init__(self, round_s: float = ROUND_S, least_connections: int = LEAST_CONNECTIONS) -> None:
        self._loop = asyncio.get_running_loop()
        self._round_s = round_s
        self._least_connections = least_connections
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        # Either the event loop watches the set, or a timer waits for the next round.
        self._is_watched = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def round_s(self) -> float:
        """The time from one round to the next."""
        change_s = len(self._readers) * ROUND_PER_CONNECTION_S
        return max(self._round_s, min(LONGEST_ROUND_S, change_s), FEW_CONNECTIONS_ROUND_S - change_s)

    def add(self, file_no: int, read: Callable[[], None]) -> None:
        """Calls `read` in each round that finds the file readable."""
        self._readers[file_no] = read
        self._epoll.register(file_no, select.EPOLLIN)
        if self._timer is None:
            self._watch()

    def remove(self, file_no: int, read: Callable[[], None]) -> None:
        if self._readers.get(file_no) == read:
            del self._readers[file_no]
            # A file that was closed has left the set by itself.
            with suppress(OSError):
                self._epoll.unregister(file_no)
            if not self._readers:
                # Nothing refers to the rounds of a provider that is gone from the routes.
                self._ignore()

    def close(self) -> None:
        self._ignore()
        if self._timer is not None:
            self._timer.cancel()
        self._epoll.close()

    def _begin_round(self) -> None:
        self._timer = None
        ready = self._epoll.poll(0)
        try:
            for file_no, _ in ready:
                # An earlier one may have removed it.
                if (read := self._readers.get(file_no)) is not None:
                    read()
        finally:
            if not ready or len(self._readers) < self._least_connections:
                self._watch()
            else:
                self._ignore()
                self._timer = self._loop.call_later(self.round_s, self._begin_round)

    def _watch(self) -> None:
        if self._readers and not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._epoll.fileno(), self._begin_round)

    def _ignore(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._epoll.fileno())


class RoundReader:
    """Reads one connection's socket instead of its transport, while it takes part in the rounds."""

    __slots__ = ("_file_no", "_has_buffer", "_protocol", "_rounds", "_transport")

    def __init__(self, rounds: ReadRounds, transport: asyncio.Transport) -> None:
        """`transport` is that of the socket: with TLS, the one below the TLS."""
        self._rounds = rounds
        self._transport = transport
        # While it takes part.
        self._file_no = NO_FILE
        self._protocol: Any = None
        # TLS hands out its own buffer.
        self._has_buffer = False

    def join(self) -> None:
        if self._file_no == NO_FILE and not self._transport.is_closing():
            self._transport.pause_reading()
            self._file_no = self._transport.get_extra_info("socket").fileno()
            self._protocol = self._transport.get_protocol()
            self._has_buffer = hasattr(self._protocol, "get_buffer")
            self._rounds.add(self._file_no, self._read)

    def leave(self) -> None:
        """Lets the transport read again; necessary before it is closed."""
        if self._file_no != NO_FILE:
            self._rounds.remove(self._file_no, self._read)
            self._file_no = NO_FILE
            # No reference cycles, for the garbage collector is to have nothing to do.
            self._protocol = None
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _read(self) -> None:
        protocol, has_buffer = self._protocol, self._has_buffer
        try:
            received: Any = (
                os.readv(self._file_no, [protocol.get_buffer(READ_BYTES)])
                if has_buffer
                else os.read(self._file_no, READ_BYTES)
            )
        except OSError:
            received = None
        if not received:
            # The transport meets the end or the error again, and handles it.
            self.leave()
            return
        try:
            (protocol.buffer_updated if has_buffer else protocol.data_received)(received)
        except BaseException:
            # As the transport does if the protocol fails.
            self.leave()
            self._transport.abort()
            raise
