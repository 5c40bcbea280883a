"""A connection pool for one server, with keep-alive."""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohappyeyeballs

from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import ConnectionRefused, HostUnknown, TimedOut, TlsFailed, Unreachable
from services.chassis.http_client.origin import Origin

# Bounds how much of a response the kernel buffers for a slow client: one read returns all of it, and auto-tuning would
# grow it to megabytes. It is still far more than a model generates per round trip.
RECEIVE_BUFFER_BYTES = 32 * 1024
# Delay before the next address of a host is tried (happy eyeballs).
NEXT_ADDRESS_AFTER_S = 0.25
# How long DNS results are cached, so that concurrent connects share one lookup.
ADDRESSES_FOR_S = 10.0

# For how long no connection is kept to a server that sent a second answer, or anything else behind a whole one.
# HTTP/1.1 does not number requests: what arrives after the next one was sent is taken for its answer.
DISTRUSTED_FOR_S = 600.0

Addresses = list[tuple[Any, Any, int, str, Any]]
# Returns the addresses of a host and port. A connection goes to one of these and to no other.
Resolve = Callable[[str, int], Awaitable[Addresses]]


async def resolve(host: str, port: int) -> Addresses:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class ConnectionPool:
    def __init__(self, origin: Origin, connect_s: float, *, keep: bool = True, resolve: Resolve = resolve) -> None:
        """`keep` keeps idle connections for the next request."""
        self._origin = origin
        self._connect_s = connect_s
        self._keeps = keep
        self._distrusted_until_s = 0.0
        self._resolve = resolve
        # The most recently used is last and taken first, so that surplus connections time out.
        self._idle: dict[HttpConnection, None] = {}
        self._open: set[HttpConnection] = set()
        self._addresses: asyncio.Task[Addresses] | None = None
        self._addresses_until_s = 0.0

    async def acquire(self) -> HttpConnection:
        """Returns an idle connection, or opens a new one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.may_be_reused():
                return connection
        return await self.connect()

    async def connect(self) -> HttpConnection:
        """Opens a new connection."""
        loop, origin = asyncio.get_running_loop(), self._origin
        connection: HttpConnection
        try:
            async with asyncio.timeout(self._connect_s):
                if origin.socket is not None:
                    transport, connection = await loop.create_unix_connection(self._new, str(origin.socket))
                else:
                    transport, connection = await loop.create_connection(self._new, sock=await self._reach(loop))
                if origin.tls is not None:
                    # In a second step, so that a connection knows the transport below the TLS, too.
                    tls = await loop.start_tls(transport, connection, origin.tls, server_hostname=origin.host)
                    connection.connection_made(cast(asyncio.Transport, tls))
        except TimeoutError:
            raise TimedOut from None
        except (OSError, UnicodeError) as error:
            raise _failure_of(error) from None
        self._open.add(connection)
        return connection

    async def warm(self) -> list[str]:
        """Opens a connection ahead of the first request; returns the names in the server's certificate."""
        connection = await self.connect()
        names = connection.server_names
        connection.release()
        return names

    async def aclose(self) -> None:
        if self._addresses is not None:
            self._addresses.cancel()
        for connection in list(self._open):
            connection.abort()
        # The event loop closes the transports in its next iteration.
        await asyncio.sleep(0)

    def take_back(self, connection: HttpConnection) -> bool:
        keeps = self._keeps and asyncio.get_running_loop().time() >= self._distrusted_until_s
        if keeps:
            self._idle[connection] = None
        return keeps

    def distrust(self) -> None:
        self._distrusted_until_s = asyncio.get_running_loop().time() + DISTRUSTED_FOR_S
        for connection in list(self._idle):
            connection.abort()

    def forget(self, connection: HttpConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _new(self) -> HttpConnection:
        return HttpConnection(self)

    async def _reach(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        if self._addresses is None or loop.time() >= self._addresses_until_s:
            self._addresses = loop.create_task(self._look_up())
            self._addresses_until_s = loop.time() + ADDRESSES_FOR_S
        # Shielded, since other callers may await the same lookup.
        addresses = await asyncio.shield(self._addresses)
        return await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S, socket_factory=_new_socket
        )

    async def _look_up(self) -> Addresses:
        addresses: Addresses = []
        try:
            addresses = await self._resolve(self._origin.host, self._origin.port)
        finally:
            if not addresses:
                self._addresses = None
        return addresses


def _failure_of(error: OSError | UnicodeError) -> Unreachable:
    if isinstance(error, socket.gaierror | UnicodeError):
        # A label that is empty or too long cannot even be asked for.
        return HostUnknown()
    if isinstance(error, ssl.SSLError):
        return TlsFailed()
    return ConnectionRefused() if _is_refusal(error) else Unreachable()


def _is_refusal(error: Exception) -> bool:
    """Returns whether the connection was refused, also by all of several addresses. A full unix socket raises
    EAGAIN."""
    if isinstance(error, ConnectionRefusedError | BlockingIOError):
        return True
    named = set(re.findall(r"\[Errno (\d+)\]", str(error)))
    return named == {str(errno.ECONNREFUSED)}


def _new_socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    # Set before connecting, so that no larger TCP window is ever announced.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return connection
