"""Sends responses: the headers that all of them have, and whole responses."""

import math
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any

import msgspec

from edge.wire.asgi import Headers, Send
from edge.wire.rate_headers import rate_headers
from protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason


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


# The official clients retry 408, 409, 429 and 5xx; for these a retry cannot help.
_NOT_WORTH_A_RETRY = frozenset(
    {
        Reason.CREDITS_EXHAUSTED,
        Reason.REQUEST_RESOLVED,
        Reason.REQUEST_REPEATED,
        Reason.IDEMPOTENCY_KEY_REUSED,
        Reason.UPSTREAM_REFUSED,
    }
)


def error_body(error: LegatoError) -> bytes:
    wire = error.wire
    return msgspec.json.encode(
        {"error": {"message": error.message, "type": wire.type, "param": error.param, "code": wire.code}}
    )


def error_headers(error: LegatoError) -> Headers:
    headers: Headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(error.retry_after_s * 1000))))
    if error.reason is Reason.RATE_LIMITED:
        # Both rate limits are reported, also the one that was not hit: nothing was taken from either.
        known = AdmitResponse.DESCRIPTOR.fields_by_name
        headers += rate_headers(AdmitResponse(**{name: error.figures.get(name, 0) for name in known}))
    if error.original_request_id is not None:
        headers.append((b"x-original-request-id", error.original_request_id.encode()))
    if error.reason in _NOT_WORTH_A_RETRY:
        headers.append((b"x-should-retry", b"false"))
    return headers
