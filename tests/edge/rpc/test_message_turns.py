"""How much of what programs send is received at the same time, and for how long a message is waited for."""

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from edge.rpc.message_turns import MOST_TURNS, MessageTurns
from edge.wire.body_reader import LARGEST_BODY_BYTES
from services.chassis.errors import LegatoError, Reason
from tests.edge.chat_harness import end, piece, saying
from tests.edge.rpc.rpc_harness import KEY, RpcHarness, reason_of
from tests.support.raw_grpc import connected, message

STREAM = "/legato.chat.v1.ChatService/Stream"
MODELS = "/legato.chat.v1.ChatService/ListModels"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
METADATA = dict(KEY)


class SilentCall:
    """A call whose message does not come before the test sends it."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self._message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def read(self) -> Any:
        self.is_asked.set()
        return await self._message

    def send(self, sent: bytes) -> None:
        self._message.set_result(sent)


async def read(turns: MessageTurns, call: SilentCall, account_id: str) -> bytes | None:
    async with turns.message(cast(Any, call), account_id) as received:
        return received


@pytest.mark.parametrize("method", [STREAM, MODELS, HEALTH, REFLECTION])
async def test_no_more_is_received_of_messages_that_never_end_than_fits_into_the_turns(
    rpc_harness: RpcHarness, method: str
) -> None:
    await rpc_harness.start(turns=MessageTurns(message_timeout_s=2, wait_timeout_s=1))
    endless = message(LARGEST_BODY_BYTES, LARGEST_BODY_BYTES - 1)
    async with connected(rpc_harness.path) as client:
        streams = [client.open(method, METADATA) for _ in range(30)]
        sent = await asyncio.gather(*(client.send(stream, endless) for stream in streams))
        assert sum(sent) < MOST_TURNS * LARGEST_BODY_BYTES
        await client.until_ended(streams)


@pytest.mark.parametrize("method", [STREAM, MODELS, HEALTH, REFLECTION])
async def test_calls_that_send_nothing_are_ended_and_leave_room_for_others(
    rpc_harness: RpcHarness, method: str
) -> None:
    await rpc_harness.start(
        saying(piece("Hello", 1), end(1)), turns=MessageTurns(message_timeout_s=1, wait_timeout_s=0.5)
    )
    async with connected(rpc_harness.path) as client:
        await client.until_ended([client.open(method, METADATA) for _ in range(500)])
        assert not client.is_closed
        assert await rpc_harness.stream() == ("Hello", None)


async def test_caller_whose_message_does_not_come_is_told_so(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(turns=MessageTurns(message_timeout_s=0.2))
    call: Any = rpc_harness.channel.stream_stream(STREAM)(metadata=KEY)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert reason_of(refused.value).reason == "BODY_TIMEOUT"


async def test_caller_that_leaves_while_it_waits_for_its_turn_gives_back_its_place(rpc_harness: RpcHarness) -> None:
    turns = MessageTurns()
    await rpc_harness.start(saying(piece("Hello", 1), end(1)), turns=turns)
    async with connected(rpc_harness.path) as client:
        streams = [client.open(STREAM, METADATA) for _ in range(50)]
        while rpc_harness.places.used < len(streams):
            await asyncio.sleep(0.01)
        await client.reset(streams)
        while rpc_harness.places.used:
            await asyncio.sleep(0.01)
        assert await rpc_harness.stream() == ("Hello", None)


async def test_account_that_fills_its_turns_leaves_some_for_others() -> None:
    turns, calls = MessageTurns(), [SilentCall() for _ in range(20)]
    reading = [asyncio.create_task(read(turns, call, "acct_endless")) for call in calls]
    await asyncio.wait_for(calls[4].is_asked.wait(), 10)
    other = SilentCall()
    other.send(b"Hi")
    assert await read(turns, other, "acct_other") == b"Hi"
    assert [call.is_asked.is_set() for call in calls] == [True] * 5 + [False] * 15
    for call in calls:
        call.send(b"late")
    assert await asyncio.gather(*reading) == [b"late"] * 20


async def test_accounts_that_wait_take_turns() -> None:
    turns, first = MessageTurns(1), SilentCall()
    holding = asyncio.create_task(read(turns, first, "acct_a"))
    await first.is_asked.wait()
    asked: list[str] = []

    async def wait(account_id: str) -> None:
        call = SilentCall()
        call.send(b"Hi")
        async with turns.message(cast(Any, call), account_id):
            asked.append(account_id)

    waiting = [asyncio.create_task(wait(account_id)) for account_id in ["acct_a", "acct_a", "acct_a", "acct_b"]]
    await asyncio.sleep(0)
    first.send(b"Hi")
    await asyncio.gather(holding, *waiting)
    assert asked == ["acct_a", "acct_b", "acct_a", "acct_a"]


async def test_turn_that_does_not_come_is_refused_and_may_come_later() -> None:
    turns, first = MessageTurns(1, wait_timeout_s=0.05), SilentCall()
    holding = asyncio.create_task(read(turns, first, "acct_a"))
    await first.is_asked.wait()
    with pytest.raises(LegatoError) as refused:
        await read(turns, SilentCall(), "acct_b")
    assert refused.value.reason is Reason.SATURATED
    first.send(b"Hi")
    await holding
    later = SilentCall()
    later.send(b"Ho")
    assert await read(turns, later, "acct_b") == b"Ho"


async def test_turn_of_a_caller_that_is_cancelled_at_the_same_moment_goes_to_the_next() -> None:
    turns, first, last = MessageTurns(1), SilentCall(), SilentCall()
    holding = asyncio.create_task(read(turns, first, "acct_a"))
    await first.is_asked.wait()
    cancelled = asyncio.create_task(read(turns, SilentCall(), "acct_b"))
    following = asyncio.create_task(read(turns, last, "acct_c"))
    await asyncio.sleep(0)
    first.send(b"Hi")
    await holding
    cancelled.cancel()
    last.send(b"Ho")
    assert await following == b"Ho"
