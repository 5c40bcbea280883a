"""Sends whole responses."""

from http import HTTPStatus

from edge.wire.asgi import Headers, Send
from edge.wire.errors import error_body, error_headers
from services.chassis.errors import LegatoError, forget_origin


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*_json_headers(body), *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_nothing(send: Send, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def send_error(send: Send, error: LegatoError, headers: Headers | None = None) -> None:
    """Sends an error, and drops its traceback, which nobody needs now."""
    forget_origin(error)
    await send_json(send, error.wire.http_status, error_body(error), [*error_headers(error), *(headers or [])])


def json_response(status: int, headers: Headers, body: bytes) -> bytes:
    """Renders a response outside of the application."""
    head = b"".join(b"%b: %b\r\n" % header for header in [*_json_headers(body), *headers])
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, HTTPStatus(status).phrase.encode(), head, body)


def _json_headers(body: bytes) -> Headers:
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
