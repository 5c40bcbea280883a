"""A minimal HTTP client, so that the load leaves the CPU to what is measured."""

import asyncio
import json
import re
import time
from typing import Final, NamedTuple, cast

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSES: Final = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class Answer(NamedTuple):
    received: bytes
    first_s: float
    total_s: float

    @property
    def is_done(self) -> bool:
        return b"data: [DONE]" in self.received

    @property
    def is_refusal(self) -> bool:
        return self.received.startswith(b"HTTP/1.1 429") and b"\r\nretry-after: " in self.received


def encode_chat(api_key: str, content: str = "How is the weather?") -> bytes:
    body = json.dumps({"model": "mezzo", "messages": [{"role": "user", "content": content}], "stream": True})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {api_key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()


class Connections:
    """A pool of reused connections, one for each concurrent request."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._idle: list[_Connection] = []

    async def ask(self, request: bytes) -> Answer:
        connection = self._take_idle()
        if connection is None:
            _, connection = await asyncio.get_running_loop().create_connection(_Connection, *self._address)
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _take_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._asked_at_s = 0.0
        self._first_s = 0.0
        self._answer: asyncio.Future[Answer] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> Answer:
        self._received.clear()
        self._asked_at_s = time.perf_counter()
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is not None:
            self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._received:
            self._first_s = time.perf_counter() - self._asked_at_s
        self._received += data
        if self._answer is not None and not self._answer.done() and self._is_whole():
            self._answer.set_result(
                Answer(bytes(self._received), self._first_s, time.perf_counter() - self._asked_at_s)
            )
            if _CLOSES.search(self._received):
                self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("before the answer was whole"))

    def _is_whole(self) -> bool:
        if self._received.endswith(_LAST_CHUNK):
            return True
        head_bytes = self._received.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(self._received, 0, head_bytes) if head_bytes > 4 else None
        return length is not None and len(self._received) >= head_bytes + int(length[1])
