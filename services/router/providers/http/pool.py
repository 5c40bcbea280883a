"""A connection pool for one server, with keep-alive."""

import asyncio
import errno
import re
import socket
import ssl
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import aiohappyeyeballs

from services.chassis.timing.deadlines import Deadlines
from services.router.providers.http.connection import HttpConnection
from services.router.providers.http.failures import ConnectionRefused, Interrupted
from services.router.providers.http.read_rounds import ReadRounds, RoundReader

# Characters of a path that are not percent-encoded.
_SAFE = "/?&=%:@!$'()*+,;~"


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a server."""

    host: str
    port: int
    # None: plain text.
    tls: ssl.SSLContext | None = None
    # A unix socket, used instead of host and port.
    socket: Path | None = None

    @property
    def name(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host.encode("idna").decode()
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def read_url(url: str, tls: ssl.SSLContext | None = None, socket: Path | None = None) -> tuple[Origin, str]:
    """Splits a URL into its origin and path. `tls` replaces the default trust store."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        tls = tls or _usual_trust()
    return Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls, socket), parts.path


def has_host(url: str) -> bool:
    """Tells if the URL names a host, and a valid port if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@cache
def _usual_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class RequestHead:
    """Prebuilt request heads of one server, which differ only in path, length and trace."""

    def __init__(self, origin: Origin, headers: dict[str, str]) -> None:
        lines = [f"{name}: {value}" for name, value in {"Host": origin.name, **headers}.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header must be one line")
        self._rest = ("\r\n".join(["", *lines, "Content-Length: "])).encode()

    def for_body(self, path: str, body: bytes, traceparent: str = "") -> bytes:
        traced = b"traceparent: %s\r\n" % traceparent.encode() if traceparent else b""
        return b"POST %s HTTP/1.1%s%d\r\n%s\r\n" % (_quoted(path), self._rest, len(body), traced)

    def for_reading(self, path: str) -> bytes:
        return b"GET %s HTTP/1.1%s0\r\n\r\n" % (_quoted(path), self._rest)


@lru_cache(maxsize=1024)
def _quoted(path: str) -> bytes:
    return quote(path, safe=_SAFE).encode()


# Bounds how much of an answer the kernel buffers for a slow client: one read returns all of it, and auto-tuning would
# grow it to megabytes. It is still far more than a model generates per round trip.
RECEIVE_BUFFER_BYTES = 32 * 1024
# Delay before the next address of a host is tried (happy eyeballs).
NEXT_ADDRESS_AFTER_S = 0.25
# How long DNS results are cached, so that concurrent connects share one lookup.
ADDRESSES_FOR_S = 10.0

_Addresses = list[tuple[Any, Any, int, str, Any]]


class ConnectionPool:
    def __init__(self, origin: Origin, connect_s: float, *, keep: bool = True) -> None:
        """`keep` keeps idle connections for the next request."""
        self._origin = origin
        self._connect_s = connect_s
        self._keeps = keep
        self.deadlines = Deadlines()
        self._rounds = ReadRounds()
        # The most recently used is last and taken first, so that surplus connections time out.
        self._idle: dict[HttpConnection, None] = {}
        self._open: set[HttpConnection] = set()
        self._addresses: asyncio.Task[_Addresses] | None = None
        self._addresses_until_s = 0.0

    async def acquire(self) -> HttpConnection:
        """Returns an idle connection, or opens a new one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
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
                    # In a second step, for the transport below the TLS is the one to be read in rounds.
                    tls = await loop.start_tls(transport, connection, origin.tls, server_hostname=origin.host)
                    connection.connection_made(cast(asyncio.Transport, tls))
        except TimeoutError:
            raise Interrupted("did not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise (ConnectionRefused if _is_refusal(error) else Interrupted)("could not be reached") from None
        connection.allow_rounds(RoundReader(self._rounds, transport))
        self._open.add(connection)
        return connection

    async def warm(self) -> None:
        """Opens a connection ahead of the first request."""
        (await self.connect()).release()

    async def aclose(self) -> None:
        if self._addresses is not None:
            self._addresses.cancel()
        for connection in list(self._open):
            connection.abort()
        self._rounds.close()
        # The event loop closes the transports in its next iteration.
        await asyncio.sleep(0)

    def take_back(self, connection: HttpConnection) -> bool:
        if self._keeps:
            self._idle[connection] = None
        return self._keeps

    def forget(self, connection: HttpConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)

    def _new(self) -> HttpConnection:
        return HttpConnection(self, self.deadlines)

    async def _reach(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        if self._addresses is None or loop.time() >= self._addresses_until_s:
            self._addresses = loop.create_task(self._look_up(loop))
            self._addresses_until_s = loop.time() + ADDRESSES_FOR_S
        # Shielded, since other callers may await the same lookup.
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
    """Tells if the connection was refused, also by all of several addresses. A full unix socket raises EAGAIN."""
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
