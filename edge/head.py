"""The head of a request, as it is read off a connection."""

import asyncio
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge.asgi import HttpScope

LARGEST_HEADERS_BYTES = 64 * 1024
LARGEST_PENDING_BYTES = 2 * LARGEST_HEADERS_BYTES

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class HeadProtocol(HttpToolsProtocol):
    """As far as the parser calls for it, from the beginning of a request to the end of its headers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers_begun = False
        self._headers_bytes = 0
        # Of what came since a request or a piece of its body last did: the parser keeps a line until it ends.
        self._pending_bytes = 0
        self._parsed_url = b""

    def feed(self, data: bytes) -> None:
        """Raises HttpParserError for what is not HTTP."""
        self._pending_bytes += len(data)
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                # The parser expects another protocol after this head, and leaves out the body. Nobody has to take up
                # such an offer; so it reads the head again, without it.
                rest = memoryview(rest)[offer.args[0] :]
                self.parser.feed_data(self._head_without_offer())
            else:
                break
        if self._pending_bytes > LARGEST_PENDING_BYTES:
            raise httptools.HttpParserError("a line that does not end")

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise httptools.HttpParserError("no tunnels here")
        headers = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade")
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, headers)

    def on_message_begin(self) -> None:
        self._headers_begun = True
        self._headers_bytes = 0
        self._pending_bytes = 0
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value))
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        self.headers.append((name, value))

    def _count_header(self, size_bytes: int) -> None:
        self._headers_bytes += size_bytes
        if self._headers_bytes > LARGEST_HEADERS_BYTES:
            # The parser stops here, and its caller sends the refusal.
            raise ValueError("headers too large")

    def _scope(self) -> HttpScope:
        if self.url != self._parsed_url:
            # Most connections are for one address.
            self._parsed_url = self.url
            self._path, self._raw_path, self._query = _parts(self.url)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": self.parser.get_http_version(),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": self.parser.get_method().decode("ascii"),
            "root_path": "",
            "path": self._path,
            "raw_path": self._raw_path,
            "query_string": self._query,
            "headers": self.headers,
            "state": {},
        }


def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Its path, that as it was sent, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""
