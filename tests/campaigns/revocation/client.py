"""Clients of one edge: one that asks with a key again and again, and one that listens to a stream."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Final

ASK_EVERY_S: Final = 0.1
WORD: Final = " rain"
ACCEPTED: Final = 200
# What is said of the key itself: 401 of a revoked one, 403 of one whose account is suspended.
REFUSED: Final = (401, 403)

Address = tuple[str, int]


@dataclass(frozen=True)
class Answer:
    sent_at_s: float
    received_at_s: float
    status: int


class Prober:
    """Asks for the models, which needs a key and nothing else."""

    def __init__(self, address: Address, api_key: str) -> None:
        self._address = address
        self._request = f"GET /v1/models HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {api_key}\r\n\r\n".encode()
        self.answers: list[Answer] = []
        self._asking = asyncio.create_task(self._keep_asking())

    async def got(self, *statuses: int) -> None:
        """Returns when the newest answer is one of these."""
        while not self.answers or self.answers[-1].status not in statuses:
            if self._asking.done():
                await self._asking
            await asyncio.sleep(ASK_EVERY_S / 5)

    async def stop(self) -> None:
        self._asking.cancel()
        await asyncio.gather(self._asking, return_exceptions=True)

    async def _keep_asking(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                sent_at_s = time.monotonic()
                writer.write(self._request)
                status = await _read_answer(reader)
                self.answers.append(Answer(sent_at_s, time.monotonic(), status))
                await asyncio.sleep(ASK_EVERY_S)
        finally:
            writer.transport.abort()


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return int(head[9:12])


@dataclass
class Stream:
    """A chat whose provider has much to say."""

    address: Address
    api_key: str
    raw: bytearray = field(default_factory=bytearray)
    ended_at_s: float | None = None

    @property
    def pieces(self) -> int:
        return self.raw.count(WORD.encode())

    @property
    def was_refused(self) -> bool:
        """Tells if it ended with an error that speaks of the key, and nothing after it."""
        last = bytes(self.raw).rstrip(b"\r\n0").rpartition(b"data: ")[2]
        return b'"invalid_api_key"' in last and b"[DONE]" not in self.raw

    async def run(self) -> None:
        body = json.dumps({"model": "mezzo", "stream": True, "messages": [{"role": "user", "content": "Weather?"}]})
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {self.api_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write((head + body).encode())
            while piece := await reader.read(65536):
                self.raw += piece
            self.ended_at_s = time.monotonic()
        finally:
            writer.transport.abort()

    async def has_begun(self) -> None:
        while self.pieces < 2:
            assert self.ended_at_s is None, bytes(self.raw)
            await asyncio.sleep(0.02)
