"""The load's own HTTP, against a server that does as it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.connections import Connections, encode_chat

STREAM = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"c\r\ndata: hello\n\r\n"
    b"10\r\ndata: [DONE]\r\n\r\n\r\n"
    b"0\r\n\r\n"
)
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 2\r\ncontent-length: 4\r\n\r\nbusy"


class Server:
    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Connections]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        connections = Connections(*server.sockets[0].getsockname())
        async with server:
            yield connections
            connections.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self._answers and await reader.read(65536):
            answer = self._answers.pop(0)
            # In pieces, as they come from a network.
            for start in range(0, len(answer), 7):
                writer.write(answer[start : start + 7])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


async def test_answers_are_read_to_their_end_on_one_connection() -> None:
    server = Server(STREAM, REFUSAL, STREAM)
    async with server.running() as connections:
        answers = [await connections.ask(encode_chat("key")) for _ in range(3)]
    assert [(answer.is_done, answer.is_refusal) for answer in answers] == [(True, False), (False, True), (True, False)]
    assert all(answer.total_s >= answer.first_s > 0 for answer in answers)
    assert server.connections == 1


async def test_answer_that_breaks_off_is_a_failure() -> None:
    async with Server(STREAM[:-5]).running() as connections:
        with pytest.raises(ConnectionResetError):
            await connections.ask(encode_chat("key"))
