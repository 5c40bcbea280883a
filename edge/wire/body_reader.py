"""Reads the body of a request, within limits of size, time and memory."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, HttpScope, Receive
from services.chassis.http.body_progress import BODY_TIMEOUT_S, PROGRESS_WITHIN_S, BodyProgress
from services.chassis.load.fair_budget import BudgetShare

# A million tokens as JSON; the token limit decides the rest.
LARGEST_BODY_BYTES = 16 * 1024 * 1024


class ClientGone(Exception):
    """The client has disconnected, and gets no answer."""


async def read_body(
    scope: HttpScope,
    receive: Receive,
    memory: BudgetShare,
    timeout_s: float = BODY_TIMEOUT_S,
    progress_within_s: float = PROGRESS_WITHIN_S,
) -> bytes:
    """Returns the body. What has arrived of it is held in `memory`, which the caller releases."""
    _check_headers(scope, memory)
    if BODY in scope:
        return _kept(scope.pop(BODY), memory)
    loop = asyncio.get_running_loop()
    progress = BodyProgress(loop.time(), timeout_s, progress_within_s)
    try:
        async with asyncio.timeout_at(progress.due_s) as upload_timeout:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                # Nearly every request arrives in one piece.
                return _kept(message["body"], memory)
            return await _read_pieces(message, receive, memory, progress, upload_timeout)
    except TimeoutError:
        raise progress.too_late(loop.time()) from None


async def _read_pieces(
    message: MutableMapping[str, Any],
    receive: Receive,
    memory: BudgetShare,
    progress: BodyProgress,
    upload_timeout: asyncio.Timeout,
) -> bytes:
    body, loop = bytearray(), asyncio.get_running_loop()
    while message["type"] == "http.request":
        piece: bytes = message["body"]
        size_bytes = len(body) + len(piece)
        if size_bytes > LARGEST_BODY_BYTES:
            raise _too_large()
        memory.grow_to(size_bytes)
        body += piece
        if not message.get("more_body", False):
            return bytes(body)
        if progress.note(len(piece), loop.time()):
            upload_timeout.reschedule(progress.due_s)
        message = await receive()
    raise ClientGone


def announced_bytes(scope: HttpScope) -> int | None:
    """Returns the length of the body that arrived with its headers, or its content-length; None for a chunked body."""
    if BODY in scope:
        return len(scope[BODY])
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def _check_headers(scope: HttpScope, memory: BudgetShare) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            if int(value) > LARGEST_BODY_BYTES:
                raise _too_large()
            # Only what arrives is held, but what cannot be held need not arrive.
            memory.check(int(value))
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise LegatoError(Reason.ENCODING_NOT_SUPPORTED, "Send the body without a content-encoding.")


def _kept(body: bytes, memory: BudgetShare) -> bytes:
    if len(body) > LARGEST_BODY_BYTES:
        raise _too_large()
    memory.grow_to(len(body))
    return body


def _too_large() -> LegatoError:
    return LegatoError(Reason.BODY_TOO_LARGE, f"The body is larger than {LARGEST_BODY_BYTES // (1024 * 1024)} MB.")
