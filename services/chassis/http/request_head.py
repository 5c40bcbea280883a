"""Parses and checks the head of a request.

A request that two parsers might read differently is refused, so that no proxy in front sees another than we do.
"""

import asyncio
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.chassis.http.asgi import HttpScope
from services.chassis.sentence import Sentence

LARGEST_HEADERS_BYTES = 64 * 1024
LARGEST_PENDING_BYTES = 2 * LARGEST_HEADERS_BYTES
# Includes trailers. Browsers and proxies together add some forty.
MOST_HEADERS = 200
VERSIONS = frozenset({"1.0", "1.1"})
# An encoded slash or backslash, which would be taken for a separator once the path is decoded.
ENCODED_SLASH = b"%2f"
DISGUISED = (ENCODED_SLASH, b"%5c")

NOT_HTTP = Sentence("not_http")
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class WrongHead(ValueError):
    """A wrong head: raising it stops the parser, and the caller refuses."""


class HeadProtocol(HttpToolsProtocol):
    """The parser's callbacks from the beginning of a request to the end of its headers."""

    # The segment that follows this path is a name: slashes that are encoded in it stay encoded.
    names_under = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers_begun = False
        self._headers_bytes = 0
        self._headers_count = 0
        # Why a request is refused, in our own words.
        self._mistake = NOT_HTTP
        # Bytes since the last request or piece of a body began: the parser buffers a line until it ends.
        self._pending_bytes = 0
        self._parsed_url = b""

    def feed(self, data: bytes) -> None:
        """Parses; raises HttpParserError for malformed data."""
        self._pending_bytes += len(data)
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                # The parser expects another protocol after this head, and leaves out the body. A server may ignore an
                # upgrade; so the parser reads the head again, without it.
                rest = memoryview(rest)[offer.args[0] :]
                self.parser.feed_data(self._head_without_offer())
            else:
                break
        if self._headers_begun and not self._headers_count and _ends_with_address(data, self.url):
            # HTTP/0.9 has no version; the parser waits for a line that never arrives.
            raise httptools.HttpParserError("no version")
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
        self._headers_count = 0
        self._pending_bytes = 0
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        self._headers_bytes += len(url)
        if self._headers_bytes > LARGEST_HEADERS_BYTES:
            raise self._too_long()
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_count += 1
        if self._headers_count > MOST_HEADERS:
            raise self._wrong(Sentence("headers_most", most=MOST_HEADERS))
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > LARGEST_HEADERS_BYTES:
            raise self._too_long()
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        self.headers.append((name, value))

    def _too_long(self) -> WrongHead:
        return self._wrong(Sentence("headers_too_large", most_kb=LARGEST_HEADERS_BYTES // 1024))

    def _check_head(self) -> None:
        """Checks the complete head."""
        version = self.parser.get_http_version()
        if version not in VERSIONS:
            raise self._wrong(Sentence("http_version"))
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and (version == "1.0" or value.strip().lower() != b"chunked"):
                raise self._wrong(Sentence("transfer_encoding"))
        if hosts != 1 and (hosts or version != "1.0"):
            raise self._wrong(Sentence("host_header"))
        if b"%" in self.url and any(disguised in self._separators_path.lower() for disguised in DISGUISED):
            raise self._wrong(Sentence("encoded_slash"))

    def _wrong(self, mistake: Sentence) -> WrongHead:
        self._mistake = mistake
        return WrongHead(mistake.id)

    def _scope(self) -> HttpScope:
        """Returns the ASGI scope; raises WrongHead."""
        if self.url != self._parsed_url:
            # Most connections request one URL only.
            self._path, self._raw_path, self._query = _parts(self.url)
            self._parsed_url = self.url
            self._separators_path = self._raw_path
            if self.names_under and self._raw_path.startswith(self.names_under):
                self._keep_name()
        self._check_head()
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

    def _keep_name(self) -> None:
        """Leaves a name as it is encoded, if a slash is part of it: it is one segment of the path, and not two."""
        name = self._raw_path.removeprefix(self.names_under).lower()
        if ENCODED_SLASH in name and b"/" not in name:
            self._path = self._raw_path.decode("ascii")
            self._separators_path = name.replace(ENCODED_SLASH, b"")


def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the decoded path, the raw path and the query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def _ends_with_address(data: bytes, url: bytes) -> bool:
    """Returns whether the request line ends with its URL."""
    return bool(url) and data.endswith(b"\n") and data.rstrip(b"\r\n").endswith(b" " + url)
