"""An exchange that breaks, falls silent, or is to a process that stands still."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import client as exchange
from services.chassis.exchange.calls import ClientCall
from services.chassis.exchange.client import CallsInFlight, ExchangeBroken, ExchangeClient
from services.chassis.rpc.channel import open_channel
from services.chassis.telemetry.log import Log
from tests.services.chassis.exchange.talker import Serve, Talker, ask, opening
from tests.support.waiting import WAIT_TIMEOUT_S


async def test_broken_exchange_fails_its_calls_and_comes_back(
    client: ExchangeClient, talker: Talker, serve: Serve
) -> None:
    call = client.open("Chat", opening("wait"), router.ChatResponse)
    await ask(client, "up")
    await serve.stop()
    async with asyncio.timeout(60):
        with pytest.raises(ExchangeBroken):
            await call.receive()
        await talker.left.wait()
        with pytest.raises(ExchangeBroken):
            await ask(client, "away")
        await serve.start()
        await client.connected()
    assert await ask(client, "back") == "back"


class LateReader:
    """An exchange's stream from which nothing is read until it may be."""

    def __init__(self, stream: Any, may_read: asyncio.Event) -> None:
        self._stream = stream
        self._may_read = may_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        await self._may_read.wait()
        async for response in self._stream:
            yield response


@asynccontextmanager
async def late_client(socket_folder: Path, may_read: asyncio.Event, log: Log) -> AsyncIterator[ExchangeClient]:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient(
            "router", lambda: cast(Any, LateReader(stub.Exchange(), may_read)), router.ExchangeRequest, log
        )
        client.start()
        await client.connected()
        yield client
        await client.close()


async def _answered_unheard(client: ExchangeClient, talker: Talker) -> ClientCall[router.ChatResponse]:
    """A call that is over, with three answers of which none was read."""
    call = client.open("Chat", opening("grants"), router.ChatResponse)
    for tokens in (1, 2, 3, 0):
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=tokens)))
        while tokens and tokens not in talker.grants:
            await asyncio.sleep(0.01)
    await talker.granted.wait()
    return call


async def _all_of(call: ClientCall[router.ChatResponse]) -> list[int]:
    heard = []
    while (response := await call.receive()) is not None:
        heard.append(response.output_tokens)
    return heard


async def test_process_that_ends_waits_until_its_last_words_were_heard(
    socket_folder: Path, serve: Serve, talker: Talker, log: Log
) -> None:
    may_read = asyncio.Event()
    async with asyncio.timeout(60), late_client(socket_folder, may_read, log) as client:
        call = await _answered_unheard(client, talker)
        closing = asyncio.create_task(talker.exchange.close())
        await asyncio.sleep(0.2)
        assert not closing.done()
        may_read.set()
        assert await _all_of(call) == [1, 2, 3]
        await closing


async def test_last_words_are_heard_also_by_one_who_speaks_into_the_end(
    socket_folder: Path, serve: Serve, talker: Talker, log: Log
) -> None:
    """A client may hear them too late to be waited for."""
    may_read = asyncio.Event()
    async with asyncio.timeout(60), late_client(socket_folder, may_read, log) as client:
        call = await _answered_unheard(client, talker)
        await talker.exchange.close()
        client.send(call.call_id, b"")
        await asyncio.sleep(0.1)
        may_read.set()
        assert await _all_of(call) == [1, 2, 3]


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


@asynccontextmanager
async def client_on_a_road(
    socket_folder: Path, log: Log, on_silence: Callable[[], None] | None = None
) -> AsyncIterator[tuple[ExchangeClient, Road]]:
    road = Road(socket_folder / "router.sock")
    proxy = await asyncio.start_unix_server(road.carry, socket_folder / "road.sock")
    async with open_channel(f"unix:{socket_folder}/road.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log, on_silence=on_silence)
        client.start()
        async with asyncio.timeout(60):
            await client.connected()
            yield client, road
        await client.close()
    await road.close()
    proxy.close()


async def test_stream_goes_on_after_a_silence_in_which_new_calls_go_elsewhere(
    serve: Serve, talker: Talker, socket_folder: Path, log: Log
) -> None:
    silences = Mock()
    async with client_on_a_road(socket_folder, log, silences) as (client, road):
        call = client.open("Chat", opening("grants"), router.ChatResponse)
        assert await ask(client, "before") == "before"
        road.block()
        # It may be repeated, so it need not wait.
        with pytest.raises(ExchangeBroken):
            await ask(client, "unheard", timeout_s=60)
        is_usable = client.usable
        assert not is_usable
        silences.assert_called_once_with()
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=7)))
        road.unblock()
        response = await call.receive()
        assert response is not None
        assert response.output_tokens == 7
        while not client.usable:
            await asyncio.sleep(0.01)
        assert await ask(client, "after") == "after"
        call.cancel()


async def test_exchange_that_stays_silent_is_broken_off_and_opened_again(
    serve: Serve, talker: Talker, socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LOST_SIGNS", 3)
    async with client_on_a_road(socket_folder, log) as (client, road):
        call = client.open("Chat", opening("wait"), router.ChatResponse)
        await ask(client, "before")
        road.block()
        with pytest.raises(ExchangeBroken):
            await call.receive()
        road.unblock()
        await client.connected()
        assert await ask(client, "after") == "after"
        await talker.left.wait()


async def test_stall_of_our_own_is_not_taken_for_the_others_silence(
    client: ExchangeClient, log_text: Callable[[], str]
) -> None:
    await client.connected()
    for _ in range(2):
        call = client.open("Chat", opening("wait"), router.ChatResponse)
        assert await ask(client, "before") == "before"
        time.sleep(2.6)  # noqa: ASYNC251 - the stall
        assert await ask(client, "after") == "after"
        call.cancel()
    assert "exchange.silent" not in log_text()


async def test_process_that_stands_still_gets_no_calls_though_it_can_be_connected_to(
    socket_folder: Path, serve: Serve, talker: Talker, log: Log
) -> None:
    talker.is_mute = True
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log)
        client.start()
        await client.connected()
        was_usable = client.usable
        talker.release.set()
        while not client.usable:
            await asyncio.sleep(0.01)
        await client.close()
    assert not was_usable


async def test_many_questions_at_once_each_get_their_own_answer(client: ExchangeClient) -> None:
    names = [f"account-{number}" for number in range(500)]
    assert await asyncio.gather(*(ask(client, name) for name in names)) == names


async def test_refusal_arrives_with_its_reason_and_retry_delay(client: ExchangeClient) -> None:
    with pytest.raises(LegatoError) as refusal:
        await ask(client, "poor")
    assert refusal.value.reason is Reason.CREDITS_EXHAUSTED
    assert (refusal.value.message, refusal.value.param, refusal.value.retry_after_s) == (
        "Nothing left.",
        "account",
        1.5,
    )
    # Nothing is kept of it, nor does it count against this replica when the least loaded is chosen.
    assert client.load == 0


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


async def test_question_that_cannot_be_read_is_refused_and_spares_the_others(
    client: ExchangeClient, talker: Talker
) -> None:
    other = asyncio.ensure_future(ask(client, "slow"))
    no_text = metering.IdempotencyClaim(key_digest=b"\xff")
    with pytest.raises(LegatoError) as refusal:
        await client.call("GetBalance", no_text, metering.GetBalanceResponse, WAIT_TIMEOUT_S)
    assert refusal.value.reason is Reason.REQUEST_INVALID
    talker.release.set()
    assert await other == "slow"


async def test_stream_arrives_whole_and_in_order(client: ExchangeClient) -> None:
    call = client.open("Chat", opening(pieces=2000), router.ChatResponse)
    numbers = []
    while (response := await call.receive()) is not None:
        numbers.append(response.output_tokens)
    assert numbers == list(range(2000))
    assert client.load == 0


async def test_call_counts_as_in_flight_until_it_ends_however_it_does(
    socket_folder: Path, serve: Serve, talker: Talker, log: Log
) -> None:
    in_flight = CallsInFlight()
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log, in_flight=in_flight)
        client.start()
        await client.connected()
        running = client.open("Chat", opening("wait"), router.ChatResponse)
        assert await ask(client, "answered") == "answered"
        with pytest.raises(LegatoError, match="Nothing left"):
            await ask(client, "poor")
        with pytest.raises(LegatoError):
            await ask(client, "slow", timeout_s=0.05)
        failing = client.open("Chat", opening("fail"), router.ChatResponse)
        assert await failing.receive() is not None
        with pytest.raises(LegatoError):
            await failing.receive()
        assert await client.open("Chat", opening(pieces=0), router.ChatResponse).receive() is None
        left = client.open("Chat", opening("wait"), router.ChatResponse)
        assert in_flight.count == client.load == 2
        left.cancel()
        left.cancel()
        assert in_flight.count == client.load == 1
        await serve.stop()
        with pytest.raises(ExchangeBroken):
            await running.receive()
        running.cancel()
        assert in_flight.count == client.load == 0
        await client.close()


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


async def test_failure_of_a_consumer_is_raised_to_its_reader_and_spares_the_exchange(client: ExchangeClient) -> None:
    consumer = Mock(take=Mock(side_effect=ValueError("a mistake of the consumer")))
    call = client.open("Chat", opening(pieces=3), router.ChatResponse, consumer=consumer)
    with pytest.raises(ValueError, match="of the consumer"):
        await call.receive()
    assert await ask(client, "another") == "another"
