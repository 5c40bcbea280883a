"""The time within which a body has to arrive: as long as it makes progress, up to a limit."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Receive
from services.chassis.sentence import Sentence

BODY_TIMEOUT_S: Final = 60.0
# A body may continue while at least this much arrives within that time: a kilobyte per second.
LEAST_PROGRESS_BYTES: Final = 30 * 1024
PROGRESS_WITHIN_S: Final = 30.0


class TimedReceive:
    """ASGI's receive; raises BODY_TIMEOUT while the body comes too slowly."""

    def __init__(
        self, receive: Receive, timeout_s: float = BODY_TIMEOUT_S, within_s: float = PROGRESS_WITHIN_S
    ) -> None:
        self._receive = receive
        self._timeout_s = timeout_s
        self._within_s = within_s
        self._moved_bytes = 0
        self._is_complete = False
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + timeout_s
        # Put off as the body progresses.
        self.due_s = min(self._end_s, self._loop.time() + within_s)

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_complete:
            # What is waited for now is the end of the connection.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self.due_s):
                message = await self._receive()
        except TimeoutError:
            if self._loop.time() < self._end_s:
                sentence = Sentence("body_stalled", within_s=f"{self._within_s:.0f}")
            else:
                sentence = Sentence("body_late", within_s=f"{self._timeout_s:.0f}")
            raise LegatoError(Reason.BODY_TIMEOUT, sentence) from None
        self._is_complete = not message.get("more_body", False)
        self._moved_bytes += len(message.get("body", b""))
        if self._moved_bytes >= LEAST_PROGRESS_BYTES:
            self._moved_bytes = 0
            self.due_s = min(self._end_s, self._loop.time() + self._within_s)
        return message
