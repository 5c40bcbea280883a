"""The connections to one server: kept for a while, so that not every request has to open one."""

import asyncio
import errno
import re
import socket
from typing import Any

import aiohappyeyeballs

from services.chassis.timing.deadlines import Deadlines
from services.router.providers.http.connection import ConnectionRefused, HttpConnection, Interrupted
from services.router.providers.http.origin import Origin
from services.router.providers.http.read_pacing import ReadPacer

# How much of an answer may wait in the kernel for a client that does not read: one read brings all that it has, and
# would have it grow to megabytes. It is still far more than a model writes in a round trip.
RECEIVE_BUFFER_BYTES = 32 * 1024
# A host with several addresses is asked at the next one when the last has not answered for so long.
NEXT_ADDRESS_AFTER_S = 0.25
# How long its addresses are believed, so that many who connect at once do not all ask for them.
ADDRESSES_FOR_S = 10.0

_Addresses = list[tuple[Any, Any, int, str, Any]]


class ConnectionPool:
    def __init__(self, origin: Origin, connect_s: float, *, keep: bool = True) -> None:
        """`keep`: whether connections that are free are kept for the next request."""
        self._origin = origin
        self._connect_s = connect_s
        self._keeps = keep
        self.deadlines = Deadlines()
        # The one that was used last is last, and taken first: so those that are too many grow old.
        self._idle: dict[HttpConnection, None] = {}
        self._open: set[HttpConnection] = set()
        self._read_pacer = ReadPacer(lambda: len(self._open) - len(self._idle))
        self._addresses: asyncio.Task[_Addresses] | None = None
        self._addresses_until_s = 0.0

    async def acquire(self) -> HttpConnection:
        """One that is free, or a new one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
                return connection
        return await self.connect()

    async def connect(self) -> HttpConnection:
        """A new one."""
        loop, origin = asyncio.get_running_loop(), self._origin
        connection: HttpConnection
        try:
            async with asyncio.timeout(self._connect_s):
                if origin.socket is not None:
                    _, connection = await loop.create_unix_connection(self._new, str(origin.socket))
                else:
                    connected = await self._reach(loop)
                    server_hostname = origin.host if origin.tls is not None else None
                    _, connection = await loop.create_connection(
                        self._new, sock=connected, ssl=origin.tls, server_hostname=server_hostname
                    )
        except TimeoutError:
            raise Interrupted("did not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise (ConnectionRefused if _is_refusal(error) else Interrupted)("could not be reached") from None
        self._open.add(connection)
        return connection

    async def warm(self) -> None:
        """Open one, for the first request to find."""
        (await self.connect()).release()

    async def aclose(self) -> None:
        if self._addresses is not None:
            self._addresses.cancel()
        for connection in list(self._open):
            connection.abort()
        # So long it takes until the event loop has closed them.
        await asyncio.sleep(0)

    def take_back(self, connection: HttpConnection) -> bool:
        if self._keeps:
            self._idle[connection] = None
        return self._keeps

    def forget(self, connection: HttpConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _new(self) -> HttpConnection:
        return HttpConnection(self, self.deadlines, self._read_pacer)

    async def _reach(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        if self._addresses is None or loop.time() >= self._addresses_until_s:
            self._addresses = loop.create_task(self._look_up(loop))
            self._addresses_until_s = loop.time() + ADDRESSES_FOR_S
        # Others may wait for them too, so whoever leaves does not end it.
        addresses = await asyncio.shield(self._addresses)
        return await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S, socket_factory=_new_socket
        )

    async def _look_up(self, loop: asyncio.AbstractEventLoop) -> _Addresses:
        addresses: _Addresses = []
        try:
            addresses = await loop.getaddrinfo(self._origin.host, self._origin.port, type=socket.SOCK_STREAM)
        finally:
            if not addresses:
                self._addresses = None
        return addresses


def _is_refusal(error: Exception) -> bool:
    """Also where a host has several addresses, and all of them refuse. A unix socket that is full says EAGAIN."""
    if isinstance(error, ConnectionRefusedError | BlockingIOError):
        return True
    named = set(re.findall(r"\[Errno (\d+)\]", str(error)))
    return named == {str(errno.ECONNREFUSED)}


def _new_socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    # Before it is connected: then the other side is never told of a larger window.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return connection
