"""A chat's way through the router: from the bytes of a provider's connection to the items of the exchange."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from legato_protos.router.v1.router_pb2 import ChatRequest, ChatResponse, ExchangeResponse, Grant, Started
from services.chassis.exchange.outbox import Outbox, read_packed
from services.chassis.exchange.server import _ServerCall
from services.chassis.http_client.connection import HttpConnection
from services.chassis.packed_pieces import unpack_piece
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import Relay
from services.router.providers.base import Timeouts
from services.router.providers.http.answer_connection import AnswerConnection
from services.router.providers.http.read_rounds import ReadRounds
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import make_call, opened
from tests.support.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%b\r\n"
DONE = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MAX_TOKENS = 100_000


def chunk(text: str) -> bytes:
    return b"data: " + msgspec.json.encode({"choices": [{"delta": {"content": text}}]}) + b"\n\n"


def framed(data: bytes) -> bytes:
    """Returns an HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        self.is_aborted = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Owner:
    def distrust(self) -> None:
        pass

    def take_back(self, connection: HttpConnection) -> bool:
        return False

    def forget(self, connection: HttpConnection) -> None:
        pass


class Chat:
    """One chat's way through the router, without sockets at either end."""

    def __init__(self, grant: Grant | None = None, *, packs: bool = False) -> None:
        self.transport = FakeTransport()
        self._rounds = ReadRounds()
        self.connection = AnswerConnection(Owner(), self._rounds)
        self.connection.connection_made(self.transport)
        # There is no socket to read in rounds.
        self.connection._round_reader = None
        self.outbox = Outbox(ExchangeResponse, Histogram(BATCH_BOUNDS))
        self.call = _ServerCall(1, ChatRequest, self.outbox)
        self.allowance = TokenAllowance(self.call, grant)
        self.relay = Relay(self.call, packs=packs)
        self.relay.begin(Started(max_tokens=MAX_TOKENS), 1, self.allowance, MAX_TOKENS)
        # Steps that the task took, after the first piece.
        self.woken = 0

    async def serve(self) -> None:
        provider = opened(OpenAIProvider, "http://127.0.0.1:1/v1", Timeouts())

        async def acquire() -> HttpConnection:
            return self.connection

        provider._connections.acquire = acquire  # type: ignore[method-assign]
        call = make_call("m", b"[]", max_tokens=MAX_TOKENS, stream=True)
        call.sink = self.relay
        pieces = provider.answer(call)
        try:
            await self.relay.pass_on(await anext(pieces))
            async for piece in pieces:
                self.woken += 1
                if not await self.relay.pass_on(piece):
                    break
        finally:
            self._rounds.close()
            self.allowance.close()
            await pieces.aclose()

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    @property
    def has_begun(self) -> bool:
        return self.relay._started is None

    @property
    def is_waiting(self) -> bool:
        return self.connection._reader is not None

    def queued(self) -> list[ChatResponse]:
        packed = [unpack_piece(payload) for _, payload in read_packed(b"".join(self.outbox._packed))]
        queued = [*self.outbox._urgent.values(), *self.outbox._turns.values(), *self.outbox._later.get(1, ())]
        return packed + [ChatResponse.FromString(payload) for _, _, payload, _ in queued]

    @property
    def contents(self) -> list[str]:
        return [content for response in self.queued() for content in response.contents]


@asynccontextmanager
async def a_chat(
    grant: Grant | None = None, *, is_chunked: bool = False
) -> AsyncIterator[tuple[Chat, "asyncio.Task[None]"]]:
    """A chat whose first piece has been relayed, and whose task waits for the next. With `is_chunked`, its answer has
    HTTP chunks, its pieces are packed, and its first one has left."""
    chat = Chat(grant, packs=is_chunked)
    task = asyncio.create_task(chat.serve())
    await until(lambda: chat.connection._waiter is not None)
    chat.receive(HEAD % (b"Transfer-Encoding: chunked\r\n" if is_chunked else b""))
    chat.receive(framed(chunk("first")) if is_chunked else chunk("first"))
    await until(lambda: chat.has_begun and chat.is_waiting)
    if is_chunked:
        await chat.outbox.next_message()
    try:
        yield chat, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
