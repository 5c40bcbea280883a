import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from legato_protos.router.v1.router_pb2 import ExchangeResponse
from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.exchange import outbox as rests
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.outbox import GATHER_S, MESSAGE_BYTES, Opening, Outbox, read_packed
from services.chassis.rpc.channel import open_channel
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from tests.services.chassis.exchange.talker import Serve, ask
from tests.support.python_calls import count_calls


def an_outbox() -> Outbox[ExchangeResponse]:
    return Outbox(ExchangeResponse, Histogram(BATCH_BOUNDS))


def say(outbox: Outbox[ExchangeResponse], call_id: int, *payloads: bytes) -> None:
    for payload in payloads:
        outbox.put(call_id, pb.ITEM_KIND_MESSAGE, payload)


async def taken(outbox: Outbox[ExchangeResponse]) -> list[tuple[int, Any, bytes]]:
    message = await outbox.next_message()
    assert message is not None
    return [(item.call_id, item.kind, item.payload) for item in message.items]


async def test_calls_take_turns_and_each_keeps_its_order() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a", b"b", b"c")
    say(outbox, 2, b"d")
    say(outbox, 3, b"e", b"f")
    assert [payload for _, _, payload in await taken(outbox)] == [b"a", b"d", b"e", b"b", b"f", b"c"]


async def test_message_is_bounded_and_what_did_not_fit_comes_next() -> None:
    outbox = an_outbox()
    half = b"x" * (MESSAGE_BYTES // 2 - 100)
    say(outbox, 1, half, b"last of 1")
    say(outbox, 2, half)
    say(outbox, 3, half)
    assert [call_id for call_id, _, _ in await taken(outbox)] == [1, 2]
    assert [(call_id, len(payload)) for call_id, _, payload in await taken(outbox)] == [(3, len(half)), (1, 9)]


async def test_item_larger_than_a_message_travels_by_itself() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"small")
    say(outbox, 2, b"x" * (2 * MESSAGE_BYTES))
    say(outbox, 3, b"small")
    assert [call_id for call_id, _, _ in await taken(outbox)] == [1]
    assert [call_id for call_id, _, _ in await taken(outbox)] == [2]
    assert [call_id for call_id, _, _ in await taken(outbox)] == [3]


async def test_heartbeat_overtakes_prompts_and_shares_no_message_with_one() -> None:
    outbox = an_outbox()
    for call_id in (1, 2, 3):
        outbox.put(call_id, pb.ITEM_KIND_OPEN, b"x" * 150_000, Opening("Chat", ""))
    assert [call_id for call_id, _, _ in await taken(outbox)] == [1]
    outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
    assert [kind for _, kind, _ in await taken(outbox)] == [pb.ITEM_KIND_ALIVE]
    assert [call_id for call_id, _, _ in await taken(outbox)] == [2]


async def test_control_goes_first() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a")
    outbox.put_control(Item(call_id=9, kind=pb.ITEM_KIND_CANCEL))
    assert [call_id for call_id, _, _ in await taken(outbox)] == [9, 1]


async def test_opening_says_what_is_opened() -> None:
    outbox = an_outbox()
    outbox.put(1, pb.ITEM_KIND_OPEN, b"first", Opening("Chat", "00-trace"))
    message = await outbox.next_message()
    assert message is not None
    assert list(message.items) == [
        Item(call_id=1, kind=pb.ITEM_KIND_OPEN, payload=b"first", method="Chat", traceparent="00-trace")
    ]


async def test_call_that_is_dropped_sends_nothing_more_and_says_whether_it_was_ever_opened() -> None:
    outbox = an_outbox()
    outbox.put(1, pb.ITEM_KIND_OPEN, b"", Opening("Chat", ""))
    say(outbox, 1, b"a")
    say(outbox, 2, b"b", b"c")
    say(outbox, 3, b"d")
    assert outbox.drop(1)
    assert not outbox.drop(2)
    assert not outbox.drop(7)
    assert [payload for _, _, payload in await taken(outbox)] == [b"d"]


async def test_end_rides_on_the_last_message_that_has_not_left() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a", b"b")
    outbox.put_end(1)
    say(outbox, 2, b"c")
    outbox.put_end(2)
    outbox.put_end(3)
    say(outbox, 4, b"")
    outbox.put_end(4)
    message, end = pb.ITEM_KIND_MESSAGE, pb.ITEM_KIND_END
    assert await taken(outbox) == [
        (1, message, b"a"), (2, end, b"c"), (3, end, b""), (4, message, b""), (1, end, b"b"), (4, end, b""),
    ]  # fmt: skip


async def test_closed_outbox_is_emptied_first() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a")
    outbox.close()
    assert len(await taken(outbox)) == 1
    assert await outbox.next_message() is None


class FakeLoop:
    """An event loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: dict[Callable[[], None], float] = {}

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> "FakeLoop":
        self.timers[callback] = at_s
        return self

    def cancel(self) -> None:
        self.timers.clear()

    async def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for callback, at_s in list(self.timers.items()):
            if at_s <= self.now_s:
                del self.timers[callback]
                callback()
        await _steps()


async def _steps() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Writer:
    """Takes messages as they are due, as the task of an exchange does."""

    def __init__(self) -> None:
        self.outbox = an_outbox()
        self.loop = FakeLoop()
        self.outbox._loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.messages: list[list[bytes]] = []
        self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while (message := await self.outbox.next_message()) is not None:
            self.messages.append([item.payload for item in message.items])

    def say_soon(self, call_id: int, payload: bytes) -> None:
        self.outbox.put(call_id, pb.ITEM_KIND_MESSAGE, payload, may_wait=True)

    async def sent(self) -> list[list[bytes]]:
        """Returns the messages since the last time."""
        await _steps()
        sent, self.messages = self.messages, []
        return sent

    async def close(self) -> None:
        self.outbox.close()
        await self._task


async def test_an_item_that_may_wait_is_sent_at_once_if_nothing_was_sent_lately() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    await writer.loop.pass_time(GATHER_S)
    writer.say_soon(1, b"b")
    assert await writer.sent() == [[b"b"]]
    await writer.close()


async def test_items_that_may_wait_are_gathered_until_some_milliseconds_after_the_last_message() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    await writer.loop.pass_time(0.2 * GATHER_S)
    writer.say_soon(2, b"b")
    writer.say_soon(1, b"c")
    await writer.loop.pass_time(0.7 * GATHER_S)
    writer.say_soon(3, b"d")
    assert await writer.sent() == []
    await writer.loop.pass_time(0.2 * GATHER_S)
    assert await writer.sent() == [[b"b", b"c", b"d"]]
    await writer.close()


def _say(writer: Writer) -> None:
    writer.outbox.put(9, pb.ITEM_KIND_MESSAGE, b"now")


def _open(writer: Writer) -> None:
    writer.outbox.put(9, pb.ITEM_KIND_OPEN, b"now", Opening("Chat", ""))


def _answer(writer: Writer) -> None:
    writer.outbox.put(9, pb.ITEM_KIND_END, b"now")


def _fail(writer: Writer) -> None:
    writer.outbox.put(9, pb.ITEM_KIND_ERROR, b"now")


def _control(writer: Writer) -> None:
    writer.outbox.put_control(Item(call_id=9, kind=pb.ITEM_KIND_ALIVE, payload=b"now"))


@pytest.mark.parametrize("put", [_say, _open, _answer, _fail, _control])
async def test_any_other_item_leaves_at_once_before_those_that_wait_and_takes_them_along(
    put: Callable[[Writer], None],
) -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    writer.say_soon(1, b"b")
    writer.say_soon(2, b"c")
    assert await writer.sent() == []
    put(writer)
    assert await writer.sent() == [[b"now", b"b", b"c"]]
    await writer.close()


async def test_an_item_in_a_hurry_does_not_overtake_its_own_call() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    for call_id, payload in ((1, b"b"), (2, b"c"), (2, b"d")):
        writer.say_soon(call_id, payload)
    writer.outbox.put(2, pb.ITEM_KIND_ERROR, b"failed")
    assert await writer.sent() == [[b"c", b"b", b"d", b"failed"]]
    await writer.close()


async def test_an_end_is_sent_at_once_with_the_message_that_waits() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    writer.say_soon(1, b"b")
    writer.say_soon(2, b"c")
    writer.outbox.put_end(2)
    assert await writer.sent() == [[b"c", b"b"]]
    await writer.close()


async def test_what_does_not_fit_in_a_message_follows_at_once() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    long = b"x" * (MESSAGE_BYTES // 2)
    for call_id in range(1, 5):
        writer.say_soon(call_id, long)
    writer.outbox.put(9, pb.ITEM_KIND_MESSAGE, b"now")
    assert await writer.sent() == [[b"now", long], [long], [long], [long]]
    await writer.close()


async def test_a_closed_outbox_sends_what_waits() -> None:
    writer = Writer()
    writer.say_soon(1, b"a")
    assert await writer.sent() == [[b"a"]]
    writer.say_soon(1, b"b")
    await writer.close()
    assert await writer.sent() == [[b"b"]]


NAMES = ["a", "b", "c"]


class Sizes(Histogram):
    def __init__(self) -> None:
        super().__init__(BATCH_BOUNDS)
        self.seen: list[float] = []

    def observe(self, value: float) -> None:
        self.seen.append(value)


class LongDelay:
    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()

    async def __call__(self, calls: int) -> None:
        self.has_begun.set()
        await self.is_over.wait()


async def test_questions_leave_together(
    socket_folder: Path, serve: Serve, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, delay = Sizes(), LongDelay()
    monkeypatch.setattr("services.chassis.exchange.client.delay_send", delay)
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(30):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log, sizes)
        client.start()
        await delay.has_begun.wait()
        waiting = [asyncio.create_task(ask(client, name, timeout_s=30)) for name in NAMES]
        await asyncio.sleep(0)
        delay.is_over.set()
        assert await asyncio.gather(*waiting) == NAMES
        await client.close()
    assert max(sizes.seen) >= len(NAMES)


@pytest.mark.parametrize(("calls", "delay_s"), [(1, None), (39, None), (40, 0.001), (100, 0.0025), (1_000, 0.005)])
async def test_rest_is_as_long_as_many_share_it_and_none_where_few_do(
    calls: int, delay_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await rests.delay_send(calls)
    assert slept == ([] if delay_s is None else [pytest.approx(delay_s)])


async def test_packed_payloads_leave_in_their_order_before_the_items_of_their_message() -> None:
    outbox = an_outbox()
    outbox.put_packed(1, b"a")
    outbox.put_packed(2, b"b")
    outbox.put_packed(1, b"c")
    outbox.put_end(1)
    message = await outbox.next_message()
    assert message is not None
    assert list(read_packed(message.packed)) == [(1, b"a"), (2, b"b"), (1, b"c")]
    assert [(item.call_id, item.kind, item.payload) for item in message.items] == [(1, pb.ITEM_KIND_END, b"")]


async def test_only_the_first_packed_payload_of_a_message_wakes_its_writer() -> None:
    outbox = an_outbox()
    writing = asyncio.create_task(outbox.next_message())
    await asyncio.sleep(0)
    first = count_calls(lambda: outbox.put_packed(1, b"a"))
    others = [count_calls(lambda: outbox.put_packed(call_id, b"b")) for call_id in (1, 2, 3)]  # noqa: B023
    assert others == [1, 1, 1]
    assert first > 1
    message = await writing
    assert message is not None
    assert [call_id for call_id, _ in read_packed(message.packed)] == [1, 1, 2, 3]


async def test_packed_payload_does_not_overtake_an_item_of_its_call() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"first")
    outbox.put_packed(1, b"a")
    outbox.put_packed(2, b"b")
    message = await outbox.next_message()
    assert message is not None
    assert list(read_packed(message.packed)) == [(2, b"b")]
    assert [item.payload for item in message.items] == [b"first", b"a"]


async def test_packed_payloads_beyond_a_message_take_their_turns() -> None:
    outbox = an_outbox()
    large = b"x" * MESSAGE_BYTES
    outbox.put_packed(1, large)
    outbox.put_packed(2, b"b")
    outbox.put_packed(2, b"c")
    message = await outbox.next_message()
    assert message is not None
    assert list(read_packed(message.packed)) == [(1, large)]
    assert not message.items
    assert [payload for _, _, payload in await taken(outbox)] == [b"b", b"c"]


async def test_packed_payload_may_wait_and_leaves_with_whatever_leaves_first() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"first")
    await taken(outbox)
    outbox.put_packed(1, b"a")
    assert not outbox._is_time()
    outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
    message = await outbox.next_message()
    assert message is not None
    assert list(read_packed(message.packed)) == [(1, b"a")]
