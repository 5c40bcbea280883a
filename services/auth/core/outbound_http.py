"""Makes single HTTP requests to addresses outside, for webhooks and for the issuer of OpenID Connect.

The host's name is resolved here and the connection goes to an address that was checked: a name that changes between the
check and the connection leads nowhere else. Redirects are not followed. A request ends in time, whatever the other end
does, and no more of a response is read than is wanted. The time counts from when a request is begun: one that waits for
others is not cut short by them.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final

from services.chassis.http_client.failures import HostUnknown, Interrupted, InvalidResponse, TimedOut, TlsFailed
from services.chassis.http_client.fetch import fetch_once
from services.chassis.http_client.origin import read_url
from services.chassis.http_client.pool import Addresses

# IPv6 addresses that stand for an IPv4 address, in their last 32 bits.
_WITH_IPV4: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
# Where clouds hand out credentials to the machines that they run. Some are outside the link-local networks.
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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


# Any other interruption is a failure of the connection.
_FAILURES: Final[Mapping[type[Interrupted], RequestFailure]] = {
    HostUnknown: RequestFailure.HOST_UNKNOWN,
    TlsFailed: RequestFailure.TLS,
    TimedOut: RequestFailure.TIMEOUT,
    InvalidResponse: RequestFailure.NOT_HTTP,
}


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
    to be reached, in private networks either."""
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


def look_up(host: str, port: int) -> Addresses:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class OutboundHttp:
    def __init__(
        self,
        *,
        connections_most: int,
        timeout_s: float,
        response_bytes_most: int,
        allows_private: bool,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Reads nothing of responses but their status if `response_bytes_most` is 0. Takes a context of TLS for tests;
        others trust what the machine trusts."""
        self._allows_private = allows_private
        self._timeout_s = timeout_s
        self._response_bytes_most = response_bytes_most
        self._tls = tls
        self._permits = asyncio.Semaphore(connections_most)
        # Threads of their own: a lookup cannot be cancelled, and must not hold up other work of this process. They
        # start as they are needed.
        self._lookups = ThreadPoolExecutor(connections_most, thread_name_prefix="lookup")

    async def request(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        """Returns the status and the content, by POST if there is a body; raises RequestFailed."""
        origin, path = read_url(url, self._tls)
        try:
            async with self._permits:
                response = await fetch_once(
                    origin,
                    path or "/",
                    headers,
                    body,
                    timeout_s=self._timeout_s,
                    most_bytes=self._response_bytes_most,
                    resolve=self._addresses_of,
                )
        except UnicodeError:
            # A label that is empty or too long cannot even be asked for.
            raise RequestFailed(RequestFailure.HOST_UNKNOWN) from None
        except Interrupted as error:
            raise RequestFailed(_FAILURES.get(type(error), RequestFailure.CONNECTION)) from None
        if not response.is_whole:
            raise RequestFailed(RequestFailure.TOO_LARGE)
        return response.status, response.body

    def close(self) -> None:
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _addresses_of(self, host: str, port: int) -> Addresses:
        found = await asyncio.get_running_loop().run_in_executor(self._lookups, look_up, host, port)
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not (self._allows_private or all(map(is_public, addresses))):
            # A host that is both here and there is not trusted at all.
            raise RequestFailed(RequestFailure.NOT_PUBLIC)
        if any(map(is_link_local, addresses)):
            raise RequestFailed(RequestFailure.LINK_LOCAL)
        return found
