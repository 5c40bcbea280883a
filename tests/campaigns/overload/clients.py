"""Clients that ask whatever became of those before, as the world does."""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

WAIT_TIMEOUT_S: Final = 60.0


@dataclass
class Tally:
    served: int = 0
    refused: int = 0
    failed: int = 0
    times_s: list[float] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.served + self.refused + self.failed

    @property
    def p99_s(self) -> float:
        return sorted(self.times_s)[len(self.times_s) * 99 // 100] if self.times_s else 0.0


class Clients:
    def __init__(
        self,
        base_url: str,
        api_keys: list[str],
        session: aiohttp.ClientSession,
        question: str = "How is the weather?",
    ) -> None:
        self._base_url = base_url
        self._url = f"{base_url}/chat/completions"
        self._api_keys = api_keys
        self._session = session
        self._chat = {"model": "mezzo", "messages": [{"role": "user", "content": question}], "stream": True}
        self._dice = random.Random(1)
        self._next_key = 0
        # A customer whose prompts the provider refuses.
        self.refused = self

    def of(self, api_key: str, question: str) -> "Clients":
        """Returns clients of another key, who ask this."""
        return Clients(self._base_url, [api_key], self._session, question)

    async def ask(self, tally: Tally) -> None:
        self._next_key = (self._next_key + 1) % len(self._api_keys)
        headers = {"Authorization": f"Bearer {self._api_keys[self._next_key]}"}
        began_s = time.monotonic()
        try:
            async with (
                asyncio.timeout(WAIT_TIMEOUT_S),
                self._session.post(self._url, json=self._chat, headers=headers) as answer,
            ):
                said = await answer.read()
        except (TimeoutError, aiohttp.ClientError):
            tally.failed += 1
            return
        if answer.status == 200 and b"data: [DONE]" in said:
            tally.served += 1
            tally.times_s.append(time.monotonic() - began_s)
        elif answer.status == 429:
            tally.refused += 1
        else:
            tally.failed += 1

    async def at_rate(self, chats_per_s: float, seconds: float, tally: Tally) -> list["asyncio.Task[None]"]:
        """Those that were asked; the last of them may not be answered yet."""
        asked: list[asyncio.Task[None]] = []
        began_s = due_at_s = time.monotonic()
        while (due_at_s := due_at_s + self._dice.expovariate(chats_per_s)) < began_s + seconds:
            await asyncio.sleep(max(0.0, due_at_s - time.monotonic()))
            asked.append(asyncio.create_task(self.ask(tally)))
        return asked

    async def at_once(self, chats: int, tally: Tally) -> None:
        await asyncio.gather(*(self.ask(tally) for _ in range(chats)))

    async def again_and_again(self, in_flight: int, seconds: float, tally: Tally) -> None:
        ends_at_s = time.monotonic() + seconds

        async def one() -> None:
            while time.monotonic() < ends_at_s:
                await self.ask(tally)

        await asyncio.gather(*(one() for _ in range(in_flight)))


async def all_of(tasks: Iterable["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks)
