"""The address of a server, and the heads of requests to it."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, urlsplit

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
    """Splits a URL into its origin, and its path with the query. `tls` replaces the default trust store."""
    parts = urlsplit(url)
    tls = (tls or _usual_trust()) if parts.scheme == "https" else None
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path
    return Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls, socket), path


def has_host(url: str) -> bool:
    """Returns whether the URL names a host, and a valid port if any."""
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

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        lines = [f"{name}: {value}" for name, value in {"Host": origin.name, **headers}.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header must be one line")
        self._rest = ("\r\n".join(["", *lines, "Content-Length: "])).encode()

    def for_body(
        self,
        path: str,
        body: bytes,
        traceparent: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
        method: bytes = b"POST",
    ) -> bytes:
        """Returns the head of a request that has these headers beside those of all."""
        others = {**headers, "traceparent": traceparent} if traceparent else headers
        lines = b""
        for name, value in others.items():
            lines += f"{name}: {value}\r\n".encode()
        return b"%s %s HTTP/1.1%s%d\r\n%s\r\n" % (method, quote_path(path), self._rest, len(body), lines)

    def for_reading(self, path: str) -> bytes:
        return b"GET %s HTTP/1.1%s0\r\n\r\n" % (quote_path(path), self._rest)


@lru_cache(maxsize=1024)
def quote_path(path: str) -> bytes:
    """Returns a path with its query as it is sent; what is percent-encoded already stays."""
    return quote(path, safe=_SAFE).encode()
