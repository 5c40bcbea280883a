"""One request and its answer, as the HTTP server sees them.

Works like uvicorn's own, except that the head of an answer is written together with its first piece: each write is a
system call, which costs more than all else that is done here.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE, HttpScope

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EVENT_STREAM = b"text/event-stream"
# Readers of an event stream ignore it.
COMMENT = b": still working on it\n\n"


class ResponseWriter(RequestResponseCycle):
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
        self._on_gone: Callable[[], None] | None = None

    def when_gone(self, on_gone: Callable[[], None]) -> None:
        if self.disconnected:
            on_gone()
        self._on_gone = on_gone
        # A disconnect is only noticed while reading, and a large body may have paused that.
        if self.flow.read_paused:
            self.flow.resume_reading()

    def connection_lost(self) -> None:
        """Handles a disconnect."""
        self.message_event.set()
        if not self.response_complete:
            self.disconnected = True
            if self._on_gone is not None:
                self._on_gone()
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
        """Waits until the client has caught up: `flow.write_paused` is True while it does not keep up."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    def write(self, body: bytes, *, more: bool = True) -> None:
        """Writes a piece of the body of a response that has begun, without waiting."""
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
        self._on_gone = None
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
