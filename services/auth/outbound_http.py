"""Makes single HTTP requests to addresses outside, for webhooks and for the issuer of OpenID Connect.

The client of providers belongs to the router, and auth makes a few requests a day, so this uses http.client in threads.
The host's name is resolved here and the connection goes to an address that was checked: a name that changes between the
check and the connection leads nowhere else. Redirects are not followed. A request ends in time, whatever the other end
does, and no more of a response is read than is wanted. The time counts from when a thread begins with the request: one
that waits for others is not cut short by them.
"""

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlsplit

# IPv6 addresses that stand for an IPv4 address, in their last 32 bits.
_WITH_IPV4: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
# Where clouds hand out credentials to the machines that they run. Some are outside the link-local networks.
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

Resolve = Callable[[str, int], list[str]]


class RequestFailure(StrEnum):
    """Says why there is no response: nothing of what the other end sent."""

    HOST_UNKNOWN = "the host name is not known"
    NOT_PUBLIC = "the address is not on the internet"
    LINK_LOCAL = "the address is link-local, or that of a metadata service"
    TLS = "TLS failed"
    TIMEOUT = "no answer in time"
    CONNECTION = "the connection failed"
    NOT_HTTP = "the answer is not HTTP"
    TOO_LARGE = "the answer is too large"


class RequestFailed(Exception):
    def __init__(self, failure: RequestFailure) -> None:
        super().__init__(failure.value)
        self.failure = failure


def is_public(text: str) -> bool:
    """Returns whether an address is on the internet, rather than in a network of ours."""
    address = _parse(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.teredo is not None or address.is_site_local):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_link_local(text: str) -> bool:
    """Returns whether an address is in a link-local network, or that of a metadata service: nothing there is a server
    that anybody means, in private networks either."""
    address = _parse(text)
    return address.is_link_local or address in _METADATA


def _parse(text: str) -> Address:
    """Returns an address, or the IPv4 address that it stands for."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is None and int(address) > 1 and any(address in network for network in _WITH_IPV4):
        embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return embedded or address


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class OutboundHttp:
    def __init__(
        self,
        name: str,
        *,
        connections_most: int,
        timeout_s: float,
        response_bytes_most: int,
        allows_private: bool,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        """Reads nothing of responses but their status if `response_bytes_most` is 0. Takes a context of TLS for tests;
        others trust what the machine trusts."""
        self.allows_private = allows_private
        self.timeout_s = timeout_s
        self.response_bytes_most = response_bytes_most
        self._tls = tls
        self._resolve = resolve
        # They start with the first request.
        self._threads = ThreadPoolExecutor(connections_most, thread_name_prefix=name)

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Returns the status and the content; raises RequestFailed."""
        attempt = _Attempt(self, method, urlsplit(url), headers, body)
        loop, timers = asyncio.get_running_loop(), contextlib.ExitStack()

        def begin() -> None:
            # A server that sends a byte now and then would hold the thread.
            timers.callback(loop.call_later(self.timeout_s, attempt.abort).cancel)

        try:
            return await loop.run_in_executor(self._threads, attempt.run, partial(loop.call_soon_threadsafe, begin))
        except asyncio.CancelledError:
            attempt.abort()
            raise
        finally:
            timers.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def connect(self, parts: SplitResult) -> socket.socket:
        """Connects to the first address of the host that answers. TLS is still to be agreed on."""
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connected = self._connect_to_any(self._addresses_of(host, port), port)
        if parts.scheme == "http":
            return connected
        try:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
        except BaseException:
            connected.close()
            raise

    def _addresses_of(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            # A label that is empty or too long cannot even be asked for.
            raise RequestFailed(RequestFailure.HOST_UNKNOWN) from None
        if not addresses or not (self.allows_private or all(map(is_public, addresses))):
            # A host that is both here and there is not trusted at all.
            raise RequestFailed(RequestFailure.NOT_PUBLIC)
        if any(map(is_link_local, addresses)):
            raise RequestFailed(RequestFailure.LINK_LOCAL)
        return addresses

    def _connect_to_any(self, addresses: Sequence[str], port: int) -> socket.socket:
        give_up_at_s = time.monotonic() + self.timeout_s
        for number, address in enumerate(addresses, start=1):
            # One that does not answer leaves time for the others.
            left_s = max(give_up_at_s - time.monotonic(), 0.01) / (len(addresses) - number + 1)
            try:
                connected = socket.create_connection((address, port), left_s)
            except OSError:
                if number == len(addresses):
                    raise
            else:
                connected.settimeout(self.timeout_s)
                return connected
        raise OSError


class _Attempt:
    """One request, in a thread. Another may abort it."""

    def __init__(
        self, client: OutboundHttp, method: str, parts: SplitResult, headers: Mapping[str, str], body: bytes | None
    ) -> None:
        self._client = client
        self._method = method
        self._parts = parts
        self._headers = headers
        self._body = body
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def run(self, begun: Callable[[], object]) -> tuple[int, bytes]:
        begun()
        try:
            self._socket = self._client.connect(self._parts)
            self._raise_if_aborted()
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.do_handshake()
            answer = self._exchange(self._socket)
            # Headers that an abort cuts off look like all there are.
            self._raise_if_aborted()
            return answer
        except (OSError, http.client.HTTPException) as error:
            # What an abort interrupts fails in many ways.
            raise RequestFailed(RequestFailure.TIMEOUT if self._is_aborted else _reason_of(error)) from None
        finally:
            if self._socket is not None:
                self._socket.close()

    def abort(self) -> None:
        self._is_aborted = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _raise_if_aborted(self) -> None:
        if self._is_aborted:
            raise TimeoutError

    def _exchange(self, connected: socket.socket) -> tuple[int, bytes]:
        parts, most = self._parts, self._client.response_bytes_most
        # With any port: without one, the last part of an IPv6 address would be taken for it.
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 443)
        connection.sock = connected
        # Without the port that the scheme implies.
        headers = {"host": parts.netloc, "connection": "close", **self._headers}
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(self._method, target, self._body, headers)
        with connection.getresponse() as response:
            content = response.read(most + 1) if most else b""
            if len(content) > most:
                raise RequestFailed(RequestFailure.TOO_LARGE)
            return response.status, content


def _reason_of(error: OSError | http.client.HTTPException) -> RequestFailure:
    if isinstance(error, ssl.SSLError):
        return RequestFailure.TLS
    if isinstance(error, TimeoutError):
        return RequestFailure.TIMEOUT
    return RequestFailure.CONNECTION if isinstance(error, OSError) else RequestFailure.NOT_HTTP
