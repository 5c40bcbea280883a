"""Reads request bodies, within limits."""

import asyncio
from typing import Any

from edge.wire.asgi import BODY, HttpScope, Receive
from services.chassis.errors import LegatoError, Reason, unavailable

# A million tokens as JSON; the token limit decides the rest.
LARGEST_BODY_BYTES = 16 * 1024 * 1024
BYTES_PER_TOKEN = 4
BODY_TIMEOUT_S = 60.0
# An upload may continue while at least this much arrives within that time: a kilobyte per second.
LEAST_PROGRESS_BYTES = 30 * 1024
PROGRESS_WITHIN_S = 30.0
# Limit on the bytes received of all requests that are being read.
IN_FLIGHT_BYTES = 256 * 1024 * 1024
# One account may use this multiple of what is still free. So the heaviest user leaves a third of the limit to others,
# and those, however many they are, leave some to the next.
SHARE_OF_FREE = 2


class ClientGone(Exception):
    """The client has disconnected, and gets no answer."""


class Bodies:
    def __init__(self, timeout_s: float = BODY_TIMEOUT_S, progress_within_s: float = PROGRESS_WITHIN_S) -> None:
        self._timeout_s = timeout_s
        self._progress_within_s = progress_within_s
        self.in_flight_bytes = 0
        self._bytes_by_account: dict[str, int] = {}

    async def read(self, scope: HttpScope, receive: Receive, account_id: str) -> bytes:
        _check_headers(scope)
        if BODY in scope:
            return _within_limit(scope.pop(BODY))
        loop = asyncio.get_running_loop()
        progress = Progress(loop.time(), self._timeout_s, self._progress_within_s)
        try:
            async with asyncio.timeout_at(progress.due_s) as upload_timeout:
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    # Nearly every request arrives in one piece.
                    return _within_limit(message["body"])
                return await self._read_pieces(message, receive, account_id, progress, upload_timeout)
        except TimeoutError:
            raise self._too_late(progress, loop.time()) from None

    async def _read_pieces(
        self,
        message: dict[str, Any],
        receive: Receive,
        account_id: str,
        progress: "Progress",
        upload_timeout: asyncio.Timeout,
    ) -> bytes:
        body, loop = bytearray(), asyncio.get_running_loop()
        try:
            while message["type"] == "http.request":
                piece: bytes = message["body"]
                if len(body) + len(piece) > LARGEST_BODY_BYTES:
                    raise _too_large()
                self._reserve_memory(account_id, len(piece))
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
                if progress.note(len(piece), loop.time()):
                    upload_timeout.reschedule(progress.due_s)
                message = await receive()
            raise ClientGone
        finally:
            self._release_memory(account_id, len(body))

    def _reserve_memory(self, account_id: str, size_bytes: int) -> None:
        """Reserves memory or raises UNAVAILABLE."""
        account_bytes = self._bytes_by_account.get(account_id, 0) + size_bytes
        free_bytes = IN_FLIGHT_BYTES - self.in_flight_bytes - size_bytes
        if account_bytes > SHARE_OF_FREE * free_bytes:
            raise unavailable("Memory for a body of this size")
        self._bytes_by_account[account_id] = account_bytes
        self.in_flight_bytes += size_bytes

    def _release_memory(self, account_id: str, size_bytes: int) -> None:
        self.in_flight_bytes -= size_bytes
        account_bytes = self._bytes_by_account.pop(account_id, 0) - size_bytes
        if account_bytes > 0:
            self._bytes_by_account[account_id] = account_bytes

    def _too_late(self, progress: "Progress", now_s: float) -> LegatoError:
        if now_s < progress.end_s:
            return LegatoError(
                Reason.BODY_TIMEOUT, f"Almost none of the body arrived for {self._progress_within_s:.0f} seconds."
            )
        return LegatoError(Reason.BODY_TIMEOUT, f"The body did not arrive within {self._timeout_s:.0f} seconds.")


class Progress:
    """The deadline of one upload, extended as it progresses."""

    __slots__ = ("_moved_bytes", "_within_s", "due_s", "end_s")

    def __init__(self, now_s: float, timeout_s: float, within_s: float) -> None:
        self._within_s = within_s
        self._moved_bytes = 0
        self.end_s = now_s + timeout_s
        self.due_s = min(self.end_s, now_s + within_s)

    def note(self, size_bytes: int, now_s: float) -> bool:
        """Counts bytes; returns whether the deadline moved."""
        self._moved_bytes += size_bytes
        if self._moved_bytes < LEAST_PROGRESS_BYTES:
            return False
        self._moved_bytes = 0
        self.due_s = min(self.end_s, now_s + self._within_s)
        return True


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


def _check_headers(scope: HttpScope) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            if int(value) > LARGEST_BODY_BYTES:
                raise _too_large()
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise LegatoError(Reason.ENCODING_NOT_SUPPORTED, "Send the body without a content-encoding.")


def _within_limit(body: bytes) -> bytes:
    if len(body) > LARGEST_BODY_BYTES:
        raise _too_large()
    return body


def _too_large() -> LegatoError:
    return LegatoError(Reason.BODY_TOO_LARGE, f"The body is larger than {LARGEST_BODY_BYTES // (1024 * 1024)} MB.")
