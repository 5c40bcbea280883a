from typing import Any

from protos.router.v1.router_pb2 import ExchangeResponse
from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.exchange.outbox import MESSAGE_BYTES, Opening, Outbox
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram


def an_outbox() -> Outbox:
    return Outbox(ExchangeResponse, Histogram(BATCH_BOUNDS))


def say(outbox: Outbox, call_id: int, *payloads: bytes) -> None:
    for payload in payloads:
        outbox.put(call_id, pb.ITEM_KIND_MESSAGE, payload)


async def taken(outbox: Outbox) -> list[tuple[int, Any, bytes]]:
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


async def test_control_goes_first() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a")
    outbox.put_control(Item(call_id=9, kind=pb.ITEM_KIND_CANCEL))
    assert [call_id for call_id, _, _ in await taken(outbox)] == [9, 1]


async def test_opening_says_what_is_opened() -> None:
    outbox = an_outbox()
    outbox.put(1, pb.ITEM_KIND_OPEN, b"first", Opening("Chat", 500, "00-trace"))
    message = await outbox.next_message()
    assert message is not None
    assert list(message.items) == [
        Item(call_id=1, kind=pb.ITEM_KIND_OPEN, payload=b"first", method="Chat", timeout_ms=500, traceparent="00-trace")
    ]


async def test_call_that_is_dropped_sends_nothing_more_and_says_whether_it_was_ever_opened() -> None:
    outbox = an_outbox()
    outbox.put(1, pb.ITEM_KIND_OPEN, b"", Opening("Chat", 0, ""))
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
