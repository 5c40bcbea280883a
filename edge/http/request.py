"""One HTTP/1.1 request: reads its head, runs the application, writes the response."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from edge.wire.completion_json import COMMENT
from edge.wire.requests import BODY, BODY_WRITER, WHEN_GONE, HttpScope

# Parses and checks the head of a request.
#
# A request that two parsers might read differently is refused, so that no proxy in front sees another than we do.

LARGEST_HEADERS_BYTES = 64 * 1024
LARGEST_PENDING_BYTES = 2 * LARGEST_HEADERS_BYTES
# Includes trailers. Browsers and proxies together add some forty.
MOST_HEADERS = 200
VERSIONS = frozenset({"1.0", "1.1"})
# An encoded slash or backslash, which would be taken for a separator once the path is decoded.
DISGUISED = (b"%2f", b"%5c")

NOT_HTTP = "This is not a valid HTTP request."
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class WrongHead(ValueError):
    """A wrong head: raising it stops the parser, and the caller refuses."""


class HeadProtocol(HttpToolsProtocol):
    """The parser's callbacks from the beginning of a request to the end of its headers."""

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
            raise self._wrong(f"A request may have at most {MOST_HEADERS} headers.")
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > LARGEST_HEADERS_BYTES:
            raise self._too_long()
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        self.headers.append((name, value))

    def _too_long(self) -> WrongHead:
        return self._wrong(f"The headers may have at most {LARGEST_HEADERS_BYTES // 1024} KB.")

    def _check_head(self) -> None:
        """Checks the complete head."""
        version = self.parser.get_http_version()
        if version not in VERSIONS:
            raise self._wrong("Use HTTP/1.1.")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and (version == "1.0" or value.strip().lower() != b"chunked"):
                raise self._wrong("The only supported transfer-encoding is chunked.")
        if hosts != 1 and (hosts or version != "1.0"):
            raise self._wrong("A request must have one Host header.")
        if b"%" in self.url and any(disguised in self._raw_path.lower() for disguised in DISGUISED):
            raise self._wrong("A path must not contain an encoded slash or backslash.")

    def _wrong(self, mistake: str) -> WrongHead:
        self._mistake = mistake
        return WrongHead(mistake)

    def _scope(self) -> HttpScope:
        """Returns the ASGI scope; raises WrongHead."""
        if self.url != self._parsed_url:
            # Most connections request one URL only.
            self._path, self._raw_path, self._query = _parts(self.url)
            self._parsed_url = self.url
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


def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the decoded path, the raw path and the query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def _ends_with_address(data: bytes, url: bytes) -> bool:
    """Returns whether the request line ends with its URL."""
    return bool(url) and data.endswith(b"\n") and data.rstrip(b"\r\n").endswith(b" " + url)


# One request and its answer, as the HTTP server sees them.
#
# Works like uvicorn's own, except that the head of an answer is written together with its first piece: each write is
# a system call, which costs more than all else that is done here.

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EVENT_STREAM = b"text/event-stream"


class Cycle(RequestResponseCycle):
    scope: HttpScope  # type: ignore[assignment]

    def __init__(self, protocol: HttpToolsProtocol, scope: HttpScope, *, keep_alive: bool) -> None:
        super().__init__(
            scope=scope,  # type: ignore[arg-type]
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=False,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=protocol.expect_100_continue,
            keep_alive=keep_alive,
            on_response=protocol.on_response_complete,
        )
        scope[WHEN_GONE] = self.when_gone
        scope[BODY_WRITER] = self
        self._is_read = False
        self._head = b""
        self._ends_with_connection = False
        self._is_event_stream = False
        self._has_chunks = False
        self._tell_gone: Callable[[], None] | None = None

    def when_gone(self, tell: Callable[[], None]) -> None:
        if self.disconnected:
            tell()
        self._tell_gone = tell
        # A disconnect is only noticed while reading, and a large body may have paused that.
        if self.flow.read_paused:
            self.flow.resume_reading()

    def connection_lost(self) -> None:
        """Handles a disconnect."""
        self.message_event.set()
        if not self.response_complete:
            self.disconnected = True
            if self._tell_gone is not None:
                self._tell_gone()
            self._drop_disconnect_callback()

    @property
    def can_probe(self) -> bool:
        return cast(str, self.scope["http_version"]) == "1.1"

    def probe(self) -> None:
        """Sends something that any client ignores: a peer that has left resets the connection, which can be seen."""
        if not self.response_started or self._head:
            self.waiting_for_100_continue = False
            self.transport.write(CONTINUE)
        elif self._is_event_stream:
            self.transport.write(self._framed(COMMENT, more=True))

    def provide_body(self) -> None:
        """Puts the complete body into the scope if it has not been read yet, so that the application need not wait."""
        if not self._is_read:
            self.scope[BODY], self.body = bytes(self.body), bytearray()
            self.message_event.clear()

    async def receive(self) -> Any:
        self._is_read = True
        if BODY in self.scope:
            return {"type": "http.request", "body": self.scope.pop(BODY), "more_body": False}
        return await super().receive()

    async def send(self, message: dict[str, Any]) -> None:  # type: ignore[override]
        if not self.response_started:
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._rendered_head(message["status"], message["headers"])
            return
        await self.drain()
        self.write(message.get("body", b""), more=message.get("more_body", False))

    async def drain(self) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    def write(self, body: bytes, *, more: bool = True) -> None:
        if self.disconnected:
            return
        if self.response_complete:
            raise RuntimeError("The answer is complete already.")
        if self._has_chunks and more and body:
            framed = b"%x\r\n%b\r\n" % (len(body), body)
        else:
            framed = self._framed(body, more=more)
        if self._head:
            framed, self._head = self._head + framed, b""
        self.transport.write(framed)
        if not more:
            self._complete()

    def _rendered_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                self.chunked_encoding = False
                self.expected_content_length = int(value)
            elif name == b"content-type":
                self._is_event_stream = value.startswith(EVENT_STREAM)
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            if self.scope["http_version"] < "1.1":
                # HTTP/1.0 has no chunks. The end of the connection marks the end of the body.
                self._ends_with_connection = True
            else:
                self.chunked_encoding = self._has_chunks = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines):
            raise RuntimeError("A header may not have more than one line.")
        return head

    def _framed(self, body: bytes, *, more: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            return b""
        if self.chunked_encoding:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return piece if more else piece + b"0\r\n\r\n"
        if self._ends_with_connection:
            return body
        self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("The body is not as long as announced.")
        return body

    def _drop_disconnect_callback(self) -> None:
        """Drops the disconnect callback. A reference cycle would have to wait for the garbage collector."""
        self._tell_gone = None
        self.scope.pop(WHEN_GONE, None)
        self.scope.pop(BODY_WRITER, None)

    def _complete(self) -> None:
        self.response_complete = True
        # The rest is never read.
        self.body = bytearray()
        self.scope.pop(BODY, None)
        self._drop_disconnect_callback()
        self.message_event.set()
        self.on_response()
