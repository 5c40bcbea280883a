import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from protos.metering.v1 import metering_pb2 as metering
from protos.router.v1 import router_pb2 as router
from protos.router.v1 import router_pb2_grpc
from services.chassis.channel import open_channel
from services.chassis.clock import SystemClock
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import (
    Conversation,
    ExchangeBroken,
    ExchangeClient,
    ExchangeServer,
    RpcCall,
    StreamMethod,
    UnaryMethod,
    serve_stream,
)
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from services.chassis.log import Log
from services.chassis.metrics import BATCH_BOUNDS, Histogram
from services.chassis.server import Server
from services.chassis.tracing import Span, Tracer, work_on

Chat = Conversation[router.ChatRequest, router.ChatResponse]


class Talker(router_pb2_grpc.RouterServiceServicer):
    """A router that says what the test wants, and remembers who left."""

    def __init__(self, log: Log, spans: list[Span]) -> None:
        """`spans` is given those of the calls that are traced."""
        self.is_mute = False
        self.sent = 0
        self.left = asyncio.Event()
        self.grants: list[int] = []
        self.release = asyncio.Event()
        self.chat = StreamMethod(router.ChatRequest, self.converse)
        self.exchange = ExchangeServer(
            "legato.router.v1.RouterService",
            {"Chat": self.chat, "GetBalance": UnaryMethod(metering.GetBalanceRequest, self.get_balance)},
            router.ExchangeResponse,
            log,
            Tracer(SystemClock(), spans.append),
        )

    async def get_balance(self, request: metering.GetBalanceRequest) -> metering.GetBalanceResponse:
        if request.account_id == "poor":
            raise LegatoError(Reason.CREDITS_EXHAUSTED, "Nothing left.", param="account", retry_after_s=1.5)
        if request.account_id == "bug":
            raise RuntimeError("said in confidence")
        if request.account_id == "slow":
            await self.release.wait()
        return metering.GetBalanceResponse(balance=metering.Balance(account_id=request.account_id))

    async def converse(self, chat: Chat) -> None:
        opened = (await chat.receive()).open
        try:
            if opened.model == "grants":
                while (grant := (await chat.receive()).grant).output_tokens:
                    self.grants.append(grant.output_tokens)
                    await chat.send(router.ChatResponse(output_tokens=grant.output_tokens))
                return
            if opened.model == "wait":
                await self.release.wait()
            if opened.model == "fail":
                await chat.send(router.ChatResponse(contents=["first"]))
                raise LegatoError(Reason.UPSTREAM_FAILED, "It broke.")
            for number in range(opened.max_tokens):
                await chat.send(router.ChatResponse(contents=["x" * int(opened.request_id or 1)], output_tokens=number))
                self.sent = number + 1
        except asyncio.CancelledError:
            self.left.set()
            raise

    async def Chat(self, request_iterator: Any, context: Any) -> AsyncIterator[router.ChatResponse]:
        async for response in serve_stream(self.chat, request_iterator, context):
            yield response

    async def Exchange(self, request_iterator: Any, context: Any) -> AsyncIterator[router.ExchangeResponse]:
        if self.is_mute:
            await self.release.wait()
        async for response in self.exchange.serve(request_iterator, context):
            yield response

    async def ListModels(self, request: Any, context: Any) -> router.ListModelsResponse:
        return router.ListModelsResponse()

    def register(self, server: grpc.aio.Server) -> str:
        router_pb2_grpc.add_RouterServiceServicer_to_server(self, server)
        return "legato.router.v1.RouterService"


def opening(model: str = "", pieces: int = 0, piece_bytes: int = 1) -> router.ChatRequest:
    return router.ChatRequest(
        open=router.ChatOpen(model=model, max_tokens=pieces, request_id=str(piece_bytes), messages_json=b"[]")
    )


@pytest.fixture
def spans() -> list[Span]:
    return []


@pytest.fixture
async def talker(log: Log, spans: list[Span]) -> Talker:
    return Talker(log, spans)


class Serve:
    def __init__(self, listen: str, talker: Talker, log: Log) -> None:
        self._make: Callable[[], Server] = lambda: Server(listen, [talker.register], log)
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = self._make()
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


@pytest.fixture
async def serve(socket_folder: Path, talker: Talker, log: Log) -> AsyncIterator[Serve]:
    serve = Serve(f"unix:{socket_folder}/router.sock", talker, log)
    await serve.start()
    yield serve
    await serve.stop()


@pytest.fixture
async def client(socket_folder: Path, serve: Serve, log: Log) -> AsyncIterator[ExchangeClient]:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, SystemClock(), log)
        client.start()
        async with asyncio.timeout(5):
            await client.connected()
        yield client
        await client.close()


async def ask(client: ExchangeClient, account_id: str, timeout_s: float = 5) -> str:
    request = metering.GetBalanceRequest(account_id=account_id)
    answer = await client.ask("GetBalance", request, metering.GetBalanceResponse, timeout_s)
    return answer.balance.account_id


async def test_many_questions_at_once_each_get_their_own_answer(client: ExchangeClient) -> None:
    names = [f"account-{number}" for number in range(500)]
    assert await asyncio.gather(*(ask(client, name) for name in names)) == names


class Sizes(Histogram):
    def __init__(self) -> None:
        super().__init__(BATCH_BOUNDS)
        self.seen: list[float] = []

    def observe(self, value: float) -> None:
        self.seen.append(value)


async def test_what_is_asked_while_an_exchange_rests_leaves_in_one_message(
    socket_folder: Path, serve: Serve, log: Log
) -> None:
    sizes = Sizes()
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient(
            "router", stub.Exchange, router.ExchangeRequest, SystemClock(), log, sizes, rest_s=lambda: 0.3
        )
        client.start()
        async with asyncio.timeout(5):
            await client.connected()
            assert await ask(client, "first") == "first"
            waiting = []
            for name in ("a", "b", "c"):
                waiting.append(asyncio.create_task(ask(client, name)))
                await asyncio.sleep(0.01)
            assert await asyncio.gather(*waiting) == ["a", "b", "c"]
        await client.close()
    assert max(sizes.seen) >= len(waiting)


async def test_refusal_arrives_with_its_reason_and_retry_delay(client: ExchangeClient) -> None:
    with pytest.raises(LegatoError) as refusal:
        await ask(client, "poor")
    assert refusal.value.reason is Reason.CREDITS_EXHAUSTED
    assert (refusal.value.message, refusal.value.param, refusal.value.retry_after_s) == (
        "Nothing left.",
        "account",
        1.5,
    )


async def test_bug_behind_a_question_is_told_without_its_text(client: ExchangeClient) -> None:
    with pytest.raises(LegatoError) as failure:
        await ask(client, "bug")
    assert failure.value.reason is Reason.INTERNAL
    assert "confidence" not in failure.value.message


async def test_question_without_an_answer_gives_up_and_spares_the_others(client: ExchangeClient) -> None:
    with pytest.raises(LegatoError) as failure:
        await ask(client, "slow", timeout_s=0.05)
    assert failure.value.reason is Reason.UNAVAILABLE
    assert await ask(client, "quick") == "quick"


async def test_stream_arrives_whole_and_in_order(client: ExchangeClient) -> None:
    call = client.open("Chat", opening(pieces=2000), router.ChatResponse)
    numbers = []
    while (response := await call.receive()) is not None:
        numbers.append(response.output_tokens)
    assert numbers == list(range(2000))
    assert client.load == 0


async def test_later_messages_reach_the_handler(client: ExchangeClient, talker: Talker) -> None:
    call = client.open("Chat", opening("grants"), router.ChatResponse)
    for tokens in (10, 20):
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=tokens)))
        response = await call.receive()
        assert response is not None
        assert response.output_tokens == tokens
    call.send(router.ChatRequest(grant=router.Grant()))
    assert await call.receive() is None
    assert talker.grants == [10, 20]


async def test_failure_comes_after_what_was_sent_before_it(client: ExchangeClient) -> None:
    call = client.open("Chat", opening("fail"), router.ChatResponse)
    first = await call.receive()
    assert first is not None
    assert list(first.contents) == ["first"]
    with pytest.raises(LegatoError) as failure:
        await call.receive()
    assert failure.value.reason is Reason.UPSTREAM_FAILED


async def test_cancelled_call_ends_its_handler(client: ExchangeClient, talker: Talker) -> None:
    call = client.open("Chat", opening("wait"), router.ChatResponse)
    await ask(client, "after the opening")
    call.cancel()
    async with asyncio.timeout(5):
        await talker.left.wait()


async def test_reader_who_stops_holds_up_its_own_call_alone(client: ExchangeClient, talker: Talker) -> None:
    piece_bytes = 16 * 1024
    stalled = client.open("Chat", opening(pieces=100, piece_bytes=piece_bytes), router.ChatResponse)
    assert await ask(client, "control still gets through") == "control still gets through"
    async with asyncio.timeout(5):
        while talker.sent * piece_bytes < WINDOW_BYTES:
            await asyncio.sleep(0.01)
    for _ in range(5):
        await ask(client, "and time passes")
    assert talker.sent * piece_bytes <= WINDOW_BYTES + piece_bytes
    pieces = 0
    while await stalled.receive() is not None:
        pieces += 1
    assert pieces == 100


async def test_small_pieces_count_as_what_they_take_while_they_wait(client: ExchangeClient, talker: Talker) -> None:
    most_pieces, stalled_at = WINDOW_BYTES // MESSAGE_OVERHEAD_BYTES, -1
    stalled = client.open("Chat", opening(pieces=2 * most_pieces), router.ChatResponse)
    async with asyncio.timeout(30):
        while talker.sent == 0 or talker.sent != stalled_at:
            stalled_at = talker.sent
            await ask(client, "time passes")
            await asyncio.sleep(0.2)
    assert 0 < talker.sent <= most_pieces
    pieces = 0
    while await stalled.receive() is not None:
        pieces += 1
    assert pieces == 2 * most_pieces


async def test_broken_exchange_fails_its_calls_and_comes_back(
    client: ExchangeClient, talker: Talker, serve: Serve
) -> None:
    call = client.open("Chat", opening("wait"), router.ChatResponse)
    await ask(client, "up")
    await serve.stop()
    async with asyncio.timeout(5):
        with pytest.raises(ExchangeBroken):
            await call.receive()
        await talker.left.wait()
        with pytest.raises(ExchangeBroken):
            await ask(client, "away")
        await serve.start()
        await client.connected()
    assert await ask(client, "back") == "back"


class Road:
    """Between a client and a server, on sockets of its own: it can be blocked without either end being told."""

    def __init__(self, to: Path) -> None:
        self._to = to
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._pumps: list[asyncio.Task[None]] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._to)
        self._pumps += [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]

    def block(self) -> None:
        self._is_open.clear()

    def unblock(self) -> None:
        self._is_open.set()

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while received := await reader.read(65536):
                await self._is_open.wait()
                writer.write(received)
        finally:
            writer.close()


async def test_exchange_that_falls_silent_is_broken_off_and_opened_again(
    serve: Serve, talker: Talker, socket_folder: Path, log: Log
) -> None:
    road = Road(socket_folder / "router.sock")
    proxy = await asyncio.start_unix_server(road.carry, socket_folder / "road.sock")
    async with open_channel(f"unix:{socket_folder}/road.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, SystemClock(), log)
        client.start()
        async with asyncio.timeout(20):
            await client.connected()
            call = client.open("Chat", opening("wait"), router.ChatResponse)
            await ask(client, "before")
            road.block()
            with pytest.raises(ExchangeBroken):
                await call.receive()
            road.unblock()
            await client.connected()
            assert await ask(client, "after") == "after"
            await talker.left.wait()
        await client.close()
    await road.close()
    proxy.close()


async def test_server_that_goes_away_takes_no_new_calls_and_finishes_the_old(
    client: ExchangeClient, talker: Talker
) -> None:
    call = client.open("Chat", opening("wait", pieces=3), router.ChatResponse)
    await ask(client, "open")
    draining = asyncio.create_task(talker.exchange.drain())
    async with asyncio.timeout(5):
        while client.usable:
            await asyncio.sleep(0.01)
        assert not draining.done()
        talker.release.set()
        pieces = 0
        while await call.receive() is not None:
            pieces += 1
        await draining
    assert pieces == 3


async def test_drain_waits_until_every_client_has_heard_of_it(client: ExchangeClient, talker: Talker) -> None:
    """So whatever was opened before that is known, and nothing is opened after."""
    async with asyncio.timeout(5):
        await ask(client, "open")
        assert client.usable
        await talker.exchange.drain()
    assert not client.usable


async def test_all_that_was_said_arrives_before_an_exchange_is_closed(client: ExchangeClient, talker: Talker) -> None:
    """More than its reader has room for at once, so that some of it still waits when the call has ended."""
    call = client.open("Chat", opening(pieces=200), router.ChatResponse)
    async with asyncio.timeout(20):
        assert await call.receive() is not None
        draining = asyncio.create_task(talker.exchange.drain())
        pieces = 1
        while await call.receive() is not None:
            pieces += 1
        await draining
        await talker.exchange.close()
    assert pieces == 200


async def test_ordinary_call_serves_the_same_conversation(socket_folder: Path, client: ExchangeClient) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening(pieces=5))
        numbers = []
        while (response := await call.receive()) is not None:
            numbers.append(response.output_tokens)
        assert numbers == [0, 1, 2, 3, 4]


async def test_ordinary_call_that_is_cancelled_ends_its_handler(
    socket_folder: Path, client: ExchangeClient, talker: Talker
) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening("grants"))
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=1)))
        assert await call.receive() is not None
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await talker.left.wait()
        assert talker.left.is_set()


async def test_process_that_stands_still_gets_no_calls_though_it_can_be_connected_to(
    socket_folder: Path, serve: Serve, talker: Talker, log: Log
) -> None:
    talker.is_mute = True
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(5):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, SystemClock(), log)
        client.start()
        await client.connected()
        was_usable = client.usable
        talker.release.set()
        while not client.usable:
            await asyncio.sleep(0.01)
        await client.close()
    assert not was_usable


async def test_calls_of_a_trace_are_spans_of_it(client: ExchangeClient, spans: list[Span]) -> None:
    assert await ask(client, "untraced") == "untraced"
    parent = Tracer(SystemClock(), lambda span: None).begin("chat")
    assert parent is not None
    work_on(parent)
    with contextlib.suppress(LegatoError):
        await ask(client, "poor")
    call = client.open("Chat", opening(pieces=1), router.ChatResponse)
    while await call.receive() is not None:
        pass
    assert [(span.name, span.parent_id, span.trace_id) for span in spans] == [
        (f"legato.router.v1.RouterService/{method}", parent.span_id, parent.trace_id)
        for method in ("GetBalance", "Chat")
    ]
    assert [span.attributes.get("error.type") for span in spans] == ["CREDITS_EXHAUSTED", None]
