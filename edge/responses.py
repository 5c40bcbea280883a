"""Whole answers, sent in one go, and the names of ASGI's parts."""

from collections.abc import Awaitable, Callable
from typing import Any

from edge.errors import Headers, error_body, error_headers
from services.chassis.errors import LegatoError

HttpScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    content = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*content, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: LegatoError, headers: Headers | None = None) -> None:
    await send_json(send, error.wire.http_status, error_body(error), [*error_headers(error), *(headers or [])])
