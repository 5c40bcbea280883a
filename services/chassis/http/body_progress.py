"""The time within which a body has to arrive: as long as it makes progress, up to a limit."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Receive

BODY_TIMEOUT_S: Final = 60.0
# A body may continue while at least this much arrives within that time: a kilobyte per second.
LEAST_PROGRESS_BYTES: Final = 30 * 1024
PROGRESS_WITHIN_S: Final = 30.0


class BodyProgress:
    """The deadline of one body, extended as it progresses."""

    __slots__ = ("_moved_bytes", "_timeout_s", "_within_s", "due_s", "end_s")

    def __init__(self, now_s: float, timeout_s: float = BODY_TIMEOUT_S, within_s: float = PROGRESS_WITHIN_S) -> None:
        self._timeout_s = timeout_s
        self._within_s = within_s
        self._moved_bytes = 0
        self.end_s = now_s + timeout_s
        self.due_s = min(self.end_s, now_s + within_s)

    def note(self, size_bytes: int, now_s: float) -> None:
        """Counts bytes, and moves the deadline if they are enough."""
        self._moved_bytes += size_bytes
        if self._moved_bytes >= LEAST_PROGRESS_BYTES:
            self._moved_bytes = 0
            self.due_s = min(self.end_s, now_s + self._within_s)

    def too_late(self, now_s: float) -> LegatoError:
        """Builds the error for a deadline that has passed."""
        if now_s < self.end_s:
            message = f"Almost none of the body arrived for {self._within_s:.0f} seconds."
        else:
            message = f"The body did not arrive within {self._timeout_s:.0f} seconds."
        return LegatoError(Reason.BODY_TIMEOUT, message)


class TimedReceive:
    """ASGI's receive; raises BODY_TIMEOUT while the body comes too slowly."""

    def __init__(
        self, receive: Receive, timeout_s: float = BODY_TIMEOUT_S, within_s: float = PROGRESS_WITHIN_S
    ) -> None:
        self._receive = receive
        self._timeout_s = timeout_s
        self._within_s = within_s
        self._progress: BodyProgress | None = None
        self._is_complete = False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_complete:
            # What is waited for now is the end of the connection.
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._progress is None:
            self._progress = BodyProgress(loop.time(), self._timeout_s, self._within_s)
        try:
            async with asyncio.timeout_at(self._progress.due_s):
                message = await self._receive()
        except TimeoutError:
            raise self._progress.too_late(loop.time()) from None
        self._is_complete = not message.get("more_body", False)
        self._progress.note(len(message.get("body", b"")), loop.time())
        return message
