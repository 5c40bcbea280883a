"""Sends responses: the headers that all of them have, and whole responses."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any

from edge.wire.asgi import Headers, Send


class Response:
    """Sends one response, with headers that it has whatever it says."""

    __slots__ = ("_headers", "_send", "has_begun")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    def put_headers(self, headers: Headers) -> None:
        """Adds to the headers of the response, which has not begun."""
        self._headers = [*headers, *self._headers]

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        if not self.has_begun:
            self.has_begun = True
            message["headers"] = [*message["headers"], *self._headers]
        return self._send(message)


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*_json_headers(body), *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_nothing(send: Send, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def json_response(status: int, headers: Headers, body: bytes) -> bytes:
    """Renders a response outside of the application."""
    head = b"".join(b"%b: %b\r\n" % header for header in [*_json_headers(body), *headers])
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, HTTPStatus(status).phrase.encode(), head, body)


def _json_headers(body: bytes) -> Headers:
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
