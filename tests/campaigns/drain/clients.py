"""Clients that ask one question after the other, at edges that say that they serve, as a load balancer would."""

import asyncio
import itertools
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from tests.campaigns.drain.harness import EDGES, POLL_S, DrainHarness

QUESTION = [{"role": "user", "content": "Who are you?"}]
WORD = "rain"
# Every so many clients there is one that wants its answer whole, and one that asks for something else than a chat.
WHOLE_EVERY, READS_EVERY = 10, 20
CLIENT_TIMEOUT_S = 120.0


@dataclass(eq=False)
class Chat:
    began_at_s: float
    edge: str
    ended_at_s: float = float("inf")
    # Of a chat that has ended: why it is not whole; empty: it is.
    flaw: str = ""


class Clients:
    def __init__(self, harness: DrainHarness, api_key: str, count: int, words: int) -> None:
        """`words` are in each whole answer."""
        self._harness = harness
        self._api_key = api_key
        self._count = count
        self._words = words
        self.chats: list[Chat] = []
        self.running: set[Chat] = set()
        # Of requests that are not chats.
        self.statuses: Counter[str] = Counter()
        self._ready: list[str] = []
        self._turns = itertools.count()
        self._is_over = False

    async def __aenter__(self) -> "Clients":
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._api_key}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=CLIENT_TIMEOUT_S),
        )
        await self._look_at_edges()
        self._watching = asyncio.create_task(self._watch_edges())
        self._tasks = [asyncio.create_task(self._ask_on(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Every question that was asked is answered first."""
        self._is_over = True
        try:
            await asyncio.gather(*self._tasks)
        finally:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            await self._session.close()

    async def until_all_run(self) -> None:
        chatting = self._count - self._count // READS_EVERY
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            while len(self.running) < chatting * 0.9:
                await asyncio.sleep(POLL_S)

    async def _watch_edges(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._look_at_edges()

    async def _look_at_edges(self) -> None:
        serving = [edge for edge in EDGES if await self._harness.is_serving(edge)]
        self._ready = serving or self._ready

    def _next_edge(self) -> str:
        return self._ready[next(self._turns) % len(self._ready)]

    async def _ask_on(self, number: int) -> None:
        # Not all in step.
        await asyncio.sleep(number / self._count)
        while not self._is_over:
            if number % READS_EVERY == 1:
                await self._read()
            else:
                await self._chat(stream=number % WHOLE_EVERY != 0)

    async def _chat(self, *, stream: bool) -> None:
        chat = Chat(time.monotonic(), self._next_edge())
        self.chats.append(chat)
        self.running.add(chat)
        body = {"model": "mezzo", "messages": QUESTION, "stream": stream}
        try:
            async with self._session.post(
                f"{self._harness.base_url(chat.edge)}/chat/completions", json=body
            ) as response:
                chat.flaw = flaw_of(response.status, await response.text(), self._words, stream=stream)
        except (aiohttp.ClientError, TimeoutError) as error:
            chat.flaw = type(error).__name__
        chat.ended_at_s = time.monotonic()
        self.running.discard(chat)

    async def _read(self) -> None:
        for path in ("models", "usage"):
            try:
                async with self._session.get(f"{self._harness.base_url(self._next_edge())}/{path}") as response:
                    await response.read()
                    self.statuses[str(response.status)] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.statuses[type(error).__name__] += 1
            await asyncio.sleep(POLL_S)


def flaw_of(status: int, text: str, words: int, *, stream: bool) -> str:
    if status != 200:
        # Our own words: they tell which service was missed.
        return f"{status} {json.loads(text)['error']['message']}"
    if text.count(WORD) != words:
        return "not whole"
    if stream and not text.endswith("data: [DONE]\n\n"):
        return "no [DONE]"
    return ""
