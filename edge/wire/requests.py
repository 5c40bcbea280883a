"""The parts of a request: its id, CORS, and the body."""

import asyncio
import os
import re
import time
from typing import Any

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, Headers, HttpScope, Receive
from services.chassis.http.body_progress import BODY_TIMEOUT_S, PROGRESS_WITHIN_S, BodyProgress
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.settings import SettingsError


def new_request_id() -> str:
    """Returns a version 7 UUID: these sort by time, so that neighbours in time are neighbours in an index."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 0x7000 | random >> 68
    low = 1 << 63 | random & (1 << 62) - 1
    return f"{high << 64 | low:032x}"


# CORS: lets pages of other origins call the service from a browser.
#
# Keys are sent in a header that the page sets itself and never in a cookie, so no page can act with a visitor's
# credentials: every origin is allowed, unless the settings list some.

ANY_ORIGIN = "*"
# The form that browsers send: lower case, no path and no trailing slash.
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z]+")
# How long a browser may cache a preflight response.
REMEMBERED_S = 86_400

# The response headers that a page may read.
EXPOSED = (
    b"x-request-id, retry-after, retry-after-ms, x-should-retry, x-original-request-id,"
    b" x-legato-max-tokens, x-legato-attempt, x-legato-ignored,"
    b" x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    b" x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class Cors:
    def __init__(self, origins: str = ANY_ORIGIN, consoles: str = "") -> None:
        """Takes comma-separated origins; `*` allows all, an empty string none. Those of the consoles, whose playground
        calls from the browser, are always allowed."""
        given = [origin.strip() for origin in origins.split(",") if origin.strip()]
        if wrong := [origin for origin in given if not ORIGIN.fullmatch(origin)]:
            raise SettingsError(
                f"LEGATO_CORS_ORIGINS: origins must be like https://app.example, not {', '.join(wrong)}"
            )
        own = [origin.strip().rstrip("/").lower() for origin in consoles.split(",") if origin.strip()]
        if wrong := [origin for origin in own if not ORIGIN.fullmatch(origin) or origin == ANY_ORIGIN]:
            raise SettingsError(
                f"LEGATO_CONSOLE_URL: origins must be like https://console.example, not {', '.join(wrong)}"
            )
        self._origins = frozenset(origin.encode() for origin in (*given, *own))
        self._any = ANY_ORIGIN.encode() in self._origins

    def headers(self, scope: HttpScope) -> Headers:
        """Returns the CORS headers of a response; none for an origin not allowed."""
        origin = _header(scope, b"origin")
        if origin is None or not (self._any or origin in self._origins):
            return []
        return [
            (b"access-control-allow-origin", ANY_ORIGIN.encode() if self._any else origin),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, scope: HttpScope) -> Headers:
        """Returns the further headers of a preflight response. A preflight request carries no key."""
        # All headers are allowed: official clients add headers of their own, and those change.
        asked = _header(scope, b"access-control-request-headers") or b"authorization, content-type"
        return [
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"%d" % REMEMBERED_S),
        ]


def _header(scope: HttpScope, name: bytes) -> bytes | None:
    for found, value in scope["headers"]:
        if found == name:
            result: bytes = value
            return result
    return None


# A million tokens as JSON; the token limit decides the rest.
LARGEST_BODY_BYTES = 16 * 1024 * 1024
BYTES_PER_TOKEN = 4


class ClientGone(Exception):
    """The client has disconnected, and gets no answer."""


class Bodies:
    def __init__(self, timeout_s: float = BODY_TIMEOUT_S, progress_within_s: float = PROGRESS_WITHIN_S) -> None:
        self._timeout_s = timeout_s
        self._progress_within_s = progress_within_s

    async def read(self, scope: HttpScope, receive: Receive, memory: BudgetShare) -> bytes:
        """Returns the body. What has arrived of it is held in `memory`, which the caller releases."""
        _check_headers(scope, memory)
        if BODY in scope:
            return _kept(scope.pop(BODY), memory)
        loop = asyncio.get_running_loop()
        progress = BodyProgress(loop.time(), self._timeout_s, self._progress_within_s)
        try:
            async with asyncio.timeout_at(progress.due_s) as upload_timeout:
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    # Nearly every request arrives in one piece.
                    return _kept(message["body"], memory)
                return await self._read_pieces(message, receive, memory, progress, upload_timeout)
        except TimeoutError:
            raise progress.too_late(loop.time()) from None

    async def _read_pieces(
        self,
        message: dict[str, Any],
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


def announced_tokens(scope: HttpScope) -> int:
    """Estimates the prompt's tokens from content-length, before the body is read; at least one. Returns one for a body
    of unknown length, which is estimated once it has arrived."""
    if BODY in scope:
        return guess_tokens(len(scope[BODY]))
    for name, value in scope["headers"]:
        if name == b"content-length":
            return guess_tokens(int(value))
    return 1


def guess_tokens(body_bytes: int) -> int:
    return 1 + min(body_bytes, LARGEST_BODY_BYTES) // BYTES_PER_TOKEN


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
