"""Makes single HTTP requests to addresses outside, for webhooks and for the issuer of OpenID Connect.

The client of providers belongs to the router, and auth makes a few requests a day, so this uses http.client in threads.
The host's name is resolved here and the connection goes to an address that was checked: a name that changes between the
check and the connection leads nowhere else. Redirects are not followed. A request ends in time, whatever the other end
does, and no more of a response is read than is wanted.
"""

import asyncio
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit

# IPv6 addresses that stand for an IPv4 address at a gateway.
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], list[str]]


class RequestFailure(StrEnum):
    """Says why there is no response: nothing of what the other end sent."""

    HOST_UNKNOWN = "the host name is not known"
    NOT_PUBLIC = "the address is not on the internet"
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
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if embedded is not None:
            return is_public(str(embedded))
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


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
        running = asyncio.get_running_loop().run_in_executor(self._threads, attempt.run)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.shield(running)
        except TimeoutError:
            # Whoever sends a byte now and then would hold the thread.
            attempt.abort()
            running.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise RequestFailed(RequestFailure.TIMEOUT) from None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def connect(self, parts: SplitResult) -> socket.socket:
        """Connects to the first address of the host that answers."""
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connected = self._connect_to_any(self._addresses_of(host, port), port)
        if parts.scheme == "http":
            return connected
        try:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls.wrap_socket(connected, server_hostname=host)
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

    def run(self) -> tuple[int, bytes]:
        try:
            self._socket = self._client.connect(self._parts)
            if self._is_aborted:
                raise RequestFailed(RequestFailure.TIMEOUT)
            return self._exchange(self._socket)
        except ssl.SSLError:
            raise RequestFailed(RequestFailure.TLS) from None
        except TimeoutError:
            raise RequestFailed(RequestFailure.TIMEOUT) from None
        except OSError:
            raise RequestFailed(RequestFailure.CONNECTION) from None
        except http.client.HTTPException:
            raise RequestFailed(RequestFailure.NOT_HTTP) from None
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
