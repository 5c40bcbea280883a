"""A model server that can be made to fail in many ways, and to come back, while others use it."""

import asyncio
import threading
from typing import Final

from tests.support.upstreams.openai import Reply, Upstream

# Whose word it is shows who has answered.
FIRST, SPARE = "first", "spare"

GONE: Final = "gone"
# What it says to everything in place of an answer.
REPLIES: Final = {
    "silent": Reply(delay_s=600),
    "broken": Reply(status=500),
    "locked out": Reply(status=401),
    "full": Reply(status=429),
    "full for a second": Reply(status=503, headers={"retry-after": "1"}),
    "nonsense": Reply(body="<html>", content_type="text/html"),
    "hangs up": Reply(writes=[]),
}
FAULTS: Final = (GONE, *REPLIES)


def answer_of(name: str) -> Reply:
    return Reply(contents=[f"{name} "], repeat=5, event_delay_s=0.01)


class FailingUpstream:
    """Has its own event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._answer = answer_of(name)
        self._upstream = Upstream(self._answer)

    @property
    def base_url(self) -> str:
        return self._upstream.base_url

    def __enter__(self) -> "FailingUpstream":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._upstream.start(), self._loop).result()
        return self

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self._upstream.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def fail(self, fault: str) -> None:
        if fault == GONE:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._upstream.kill(), self._loop))
        else:
            self._upstream.default_reply = REPLIES[fault]

    async def come_back(self, fault: str) -> None:
        # What came was recorded; it is not looked at here.
        self._upstream.requests.clear()
        if fault == GONE:
            again = self._upstream.start(self._upstream.port)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(again, self._loop))
        else:
            self._upstream.default_reply = self._answer
