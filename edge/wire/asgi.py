"""ASGI types, request ids and the address of the client."""

import ipaddress
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from services.chassis.settings import SettingsError

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
# Registers a callback for a client that disconnects before its answer is complete.
WhenGone = Callable[[Callable[[], None]], None]


class BodyWriter(Protocol):
    """Writes pieces of a response's body without waiting."""

    @property
    def can_write(self) -> bool:
        """False while the client does not keep up, and before the response has begun."""
        ...

    def write(self, body: bytes) -> None: ...

    async def drain(self) -> None:
        """Waits until the client has caught up."""
        ...


# Scope key of the request's body, if that came together with its headers, so that nobody needs to wait for it.
BODY = "legato.body"
# Scope key of the WhenGone function, which registers a callback for a disconnect.
WHEN_GONE = "legato.when_gone"
# Scope key of the response's BodyWriter.
BODY_WRITER = "legato.body_writer"


def new_request_id() -> str:
    """Returns a version 7 UUID: these sort by time, so that neighbours in time are neighbours in an index."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 0x7000 | random >> 68
    low = 1 << 63 | random & (1 << 62) - 1
    return f"{high << 64 | low:032x}"


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Addresses:
    def __init__(self, trusted_proxies: str = "") -> None:
        """Parses addresses or networks (`10.0.0.0/8`), comma-separated."""
        self._trusted = [_to_network(given.strip()) for given in trusted_proxies.split(",") if given.strip()]

    def of(self, scope: HttpScope) -> Address | None:
        """Returns the address, or None for a client on a Unix socket."""
        client = scope.get("client")
        address = _to_address(client[0]) if client else None
        if address is None or not self._trusted or not self._is_trusted(address):
            return address
        return self._forwarded(scope) or address

    def _forwarded(self, scope: HttpScope) -> Address | None:
        """Returns the last address that is not a trusted proxy: a client can forge all before it."""
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        address = None
        for given in reversed(forwarded.decode("latin-1").split(",")):
            address = _to_address(given.strip())
            if address is None or not self._is_trusted(address):
                return address
        return address

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _to_address(given: str) -> Address | None:
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _to_network(given: str) -> Network:
    try:
        return ipaddress.ip_network(given)
    except ValueError:
        raise SettingsError(f"LEGATO_TRUSTED_PROXIES: {given} is not an IP address or network") from None


# CORS: lets pages of other origins call the service from a browser.
#
# Keys are sent in a header that the page sets itself and never in a cookie, so no page can act with a visitor's
# credentials: every origin is allowed, unless the settings list some.

ANY_ORIGIN = "*"
# The form that browsers send: lower case, no path and no trailing slash.
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z]+")
# How long a browser may cache a preflight response.
REMEMBERED_S = 86_400

# The response headers that a page may read.
EXPOSED = (
    b"x-request-id, retry-after, retry-after-ms, x-should-retry, x-original-request-id,"
    b" x-legato-max-tokens, x-legato-attempt,"
    b" x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    b" x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class Cors:
    def __init__(self, origins: str = ANY_ORIGIN) -> None:
        """Takes comma-separated origins; `*` allows all, an empty string none."""
        given = [origin.strip() for origin in origins.split(",") if origin.strip()]
        if wrong := [origin for origin in given if not ORIGIN.fullmatch(origin)]:
            raise SettingsError(
                f"LEGATO_CORS_ORIGINS: origins must be like https://app.example, not {', '.join(wrong)}"
            )
        self._origins = frozenset(origin.encode() for origin in given)
        self._any = ANY_ORIGIN.encode() in self._origins

    def headers(self, scope: HttpScope) -> Headers:
        """Returns the CORS headers of a response; none for an origin not allowed."""
        origin = _header(scope, b"origin")
        if origin is None or not (self._any or origin in self._origins):
            return []
        return [
            (b"access-control-allow-origin", ANY_ORIGIN.encode() if self._any else origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, scope: HttpScope) -> Headers:
        """Returns the further headers of a preflight response. A preflight request carries no key."""
        # All headers are allowed: official clients add headers of their own, and those change.
        asked = _header(scope, b"access-control-request-headers") or b"authorization, content-type"
        return [
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"%d" % REMEMBERED_S),
        ]


def _header(scope: HttpScope, name: bytes) -> bytes | None:
    for found, value in scope["headers"]:
        if found == name:
            result: bytes = value
            return result
    return None
