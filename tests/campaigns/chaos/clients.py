"""Clients that ask one question after the other, and what they got."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from tests.campaigns.chaos.failing_upstream import FIRST, SPARE

QUESTION = [{"role": "user", "content": "Who are you?"}]
CLIENT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    took_s: float
    # Who has answered, as far as can be seen.
    by: str = ""
    # Which attempt was answered.
    attempt: int = 0
    # A stream that ended in an error after its first word.
    is_cut: bool = False
    # Of what should not have been; empty: all is well.
    error: str = ""


class Clients:
    def __init__(self, base_url: str, api_key: str, count: int, note: Callable[[Outcome], None]) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._count = count
        self._record = note
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False

    async def __aenter__(self) -> "Clients":
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._api_key}"},
            timeout=aiohttp.ClientTimeout(total=CLIENT_TIMEOUT_S),
        )
        self._tasks = [asyncio.create_task(self._ask_on(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Every question that was asked is answered first."""
        self._is_over = True
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self._session.close()

    async def _ask_on(self, number: int) -> None:
        # Every other question wants its answer whole.
        stream = bool(number % 2)
        while not self._is_over:
            began_at_s = time.monotonic()
            try:
                status, attempt, text = await self._ask(stream)
            except (aiohttp.ClientError, TimeoutError) as error:
                self._record(Outcome(time.monotonic() - began_at_s, error=type(error).__name__))
            else:
                self._record(judge(time.monotonic() - began_at_s, status, attempt, text, stream=stream))
            stream = not stream

    async def _ask(self, stream: bool) -> tuple[int, int, str]:
        body = {"model": "mezzo", "messages": QUESTION, "stream": stream}
        async with self._session.post(f"{self._base_url}/chat/completions", json=body) as response:
            return response.status, int(response.headers.get("x-legato-attempt", "0")), await response.text()


def judge(took_s: float, status: int, attempt: int, text: str, *, stream: bool) -> Outcome:
    by = next((name for name in (FIRST, SPARE) if f"{name} " in text), "")
    if status != 200:
        return Outcome(took_s, error=f"{status} {json.loads(text)['error']['code']}")
    if not stream or text.endswith("data: [DONE]\n\n"):
        return Outcome(took_s, by, attempt, error="" if by else "an answer by no model")
    if 'data: {"error":' not in text:
        return Outcome(took_s, by, attempt, error="a stream that ended in silence")
    if not by:
        return Outcome(took_s, error="an error before the first word")
    return Outcome(took_s, by, attempt, is_cut=True)
