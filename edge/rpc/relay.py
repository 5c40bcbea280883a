"""Takes the connections of programs, and passes their bytes to gRPC, which listens on a private socket.

gRPC for Python takes no listening socket of another process, limits neither its connections nor what one of them
cancels, and can close none. TLS ends in gRPC: what passes here is what the program has sent.
"""

import asyncio
import os
import socket
from typing import Final, cast

from services.chassis.http.connection_limit import ConnectionLimit

# As many calls as one connection may have, so that all of them may end at once.
FREE_RESETS: Final = 1000
RESETS_PER_S: Final = 100.0
LAST_READ_WITHIN_S: Final = 10.0

Client = tuple[str, int] | None


class _Side(asyncio.Protocol):
    """One side of a connection: what it receives leaves by the other side."""

    transport: asyncio.Transport
    other: "_Side | None" = None

    def __init__(self) -> None:
        self._is_resting = False
        self._is_blocked = False
        # Received before there is another side.
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def join(self, other: "_Side") -> None:
        self.other = other
        early, self._early = self._early, b""
        self.block(is_blocked=False)
        if early:
            other.transport.write(early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
            self.block(is_blocked=True)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.block(is_blocked=True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.block(is_blocked=False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.end()

    def end(self) -> None:
        """Sends what it still has, if that is read soon, and closes."""
        if not self.transport.is_closing():
            self.transport.close()
            asyncio.get_running_loop().call_later(LAST_READ_WITHIN_S, self.transport.abort)

    def block(self, *, is_blocked: bool) -> None:
        """Reads nothing while the other side cannot write."""
        self._is_blocked = is_blocked
        self._adjust()

    def rest(self, *, is_resting: bool) -> None:
        """Reads nothing for a while."""
        self._is_resting = is_resting
        self._adjust()

    def _adjust(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_resting or self._is_blocked:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class ProgramConnection(_Side):
    """A connection that a program has opened."""

    def __init__(self, relay: "ProgramRelay") -> None:
        super().__init__()
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self.peer = ""
        self.client: Client = None
        self._calls = 0
        # Of calls that were cancelled, less those that are forgiven by now.
        self._resets = 0.0
        self._reset_at_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.client = (peer[0], peer[1]) if isinstance(peer, tuple) else None
        if self._relay.connections.add(self.transport):
            self._wait()
            self._relay.begin(self)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.connections.remove(self.transport)
        self._relay.end(self)
        super().connection_lost(exc)

    def begin_call(self) -> None:
        self._calls += 1
        self._relay.connections.work(self.transport)

    def end_call(self) -> None:
        self._calls -= 1
        if not self._calls and not self.transport.is_closing():
            self._wait()

    def record_reset(self) -> None:
        """Counts a call that its caller cancelled. A connection that cancels too many is read as slowly as it may
        cancel."""
        now_s = self._loop.time()
        self._resets = max(0.0, self._resets - (now_s - self._reset_at_s) * RESETS_PER_S) + 1
        self._reset_at_s = now_s
        if self._resets > FREE_RESETS and not self._is_resting:
            self.rest(is_resting=True)
            self._loop.call_later((self._resets - FREE_RESETS) / RESETS_PER_S, self._end_rest)

    def _end_rest(self) -> None:
        owed_s = (self._resets - FREE_RESETS) / RESETS_PER_S - (self._loop.time() - self._reset_at_s)
        if owed_s > 0 and not self.transport.is_closing():
            self._loop.call_later(owed_s, self._end_rest)
        else:
            self.rest(is_resting=False)

    def _wait(self) -> None:
        self._relay.connections.wait(self.transport, self.transport.close)


class ProgramRelay:
    def __init__(self, listener: socket.socket, served_at: str, connections: ConnectionLimit) -> None:
        """Takes the program's connections at `listener` to gRPC, which serves at `served_at`, a `unix:PATH`."""
        self.served_at = served_at
        self.connections = connections
        self._listener = listener
        self._open: dict[str, ProgramConnection] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._listener.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(lambda: ProgramConnection(self), sock=self._listener)
        else:
            self._server = await loop.create_server(lambda: ProgramConnection(self), sock=self._listener)

    def find(self, peer: str) -> ProgramConnection | None:
        """Returns the connection that gRPC calls so; None if it is closed."""
        return self._open.get(peer)

    def stop_listening(self) -> None:
        """Takes no further connections; where another process holds the socket too, they wait there."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        self.stop_listening()
        for connection in tuple(self._open.values()):
            connection.transport.close()

    def begin(self, connection: ProgramConnection) -> None:
        task = asyncio.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def end(self, connection: ProgramConnection) -> None:
        # A name that is free again may be another's already.
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]

    async def _connect(self, connection: ProgramConnection) -> None:
        """Connects it to gRPC, from a name by which gRPC tells whose call it is."""
        loop, inner = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            # Linux gives it a name that no other socket has.
            inner.bind("")
            await loop.sock_connect(inner, self.served_at.removeprefix("unix:"))
            if connection.transport.is_closing():
                inner.close()
                return
            connection.peer = "unix-abstract:" + os.fsdecode(inner.getsockname()[1:])
            self._open[connection.peer] = connection
            _, side = await loop.create_unix_connection(_Side, sock=inner)
        except OSError:
            # It is stopping.
            inner.close()
            connection.transport.close()
            return
        side.join(connection)
        if connection.transport.is_closing():
            side.transport.close()
            self.end(connection)
        else:
            connection.join(side)
