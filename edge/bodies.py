"""Reads request bodies, within limits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge.asgi import HttpScope, Receive
from edge.cycle import BODY
from services.chassis.errors import LegatoError, Reason, unavailable

# A million tokens as JSON; the token count decides the rest.
LARGEST_BODY_BYTES = 16 * 1024 * 1024
BYTES_PER_TOKEN = 4
BODY_TIMEOUT_S = 60.0
# Of all requests that are being read at once.
IN_FLIGHT_BYTES = 256 * 1024 * 1024


class ClientGone(Exception):
    """Whoever asked has left; there is nobody to answer."""


class Bodies:
    def __init__(self, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._in_flight_bytes = 0

    async def read(self, scope: HttpScope, receive: Receive) -> bytes:
        announced_bytes = _check_headers(scope)
        if BODY in scope:
            return _within_limit(scope.pop(BODY))
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    # Nearly every request arrives in one piece.
                    return _within_limit(message["body"])
                with self._room_for(announced_bytes):
                    return await _read_pieces(message, receive)
        except TimeoutError:
            raise LegatoError(
                Reason.BODY_TIMEOUT, f"The body did not arrive within {self._timeout_s:.0f} seconds."
            ) from None

    @contextmanager
    def _room_for(self, size_bytes: int) -> Iterator[None]:
        if self._in_flight_bytes + size_bytes > IN_FLIGHT_BYTES:
            raise unavailable("Room for a body of this size")
        self._in_flight_bytes += size_bytes
        try:
            yield
        finally:
            self._in_flight_bytes -= size_bytes


def announced_tokens(scope: HttpScope) -> int:
    """A guess at the prompt, before any of it is read; at least one."""
    if BODY in scope:
        return 1 + min(len(scope[BODY]), LARGEST_BODY_BYTES) // BYTES_PER_TOKEN
    for name, value in scope["headers"]:
        if name == b"content-length":
            return 1 + min(int(value), LARGEST_BODY_BYTES) // BYTES_PER_TOKEN
    return 1


def _check_headers(scope: HttpScope) -> int:
    """How many bytes the body may have, as announced."""
    announced_bytes = LARGEST_BODY_BYTES
    for name, value in scope["headers"]:
        if name == b"content-length":
            announced_bytes = int(value)
            if announced_bytes > LARGEST_BODY_BYTES:
                raise _too_large()
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise LegatoError(Reason.ENCODING_NOT_SUPPORTED, "Send the body without a content-encoding.")
    return announced_bytes


async def _read_pieces(message: dict[str, Any], receive: Receive) -> bytes:
    body = bytearray()
    while message["type"] == "http.request":
        body += message["body"]
        if len(body) > LARGEST_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()
    raise ClientGone


def _within_limit(body: bytes) -> bytes:
    if len(body) > LARGEST_BODY_BYTES:
        raise _too_large()
    return body


def _too_large() -> LegatoError:
    return LegatoError(Reason.BODY_TOO_LARGE, f"The body is larger than {LARGEST_BODY_BYTES // (1024 * 1024)} MB.")
