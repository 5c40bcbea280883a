"""Calls of an exchange, without one around them: who gets what arrives, and when its credit is returned."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from legato_protos.router.v1 import router_pb2 as router
from services.chassis.exchange.calls import ClientCall, arrive
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from services.chassis.packed_pieces import pack_piece, unpack_piece


class CreditCounter:
    """An exchange that counts what its calls return."""

    def __init__(self) -> None:
        self.credit_bytes: Counter[int] = Counter()

    def send(self, call_id: int, payload: bytes) -> None: ...

    def credit(self, call_id: int, credit_bytes: int) -> None:
        self.credit_bytes[call_id] += credit_bytes

    def forget(self, call_id: int) -> None: ...

    def give_up(self, call_id: int) -> None: ...


class PausedConsumer:
    """Takes payloads until it is paused."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.is_paused = False

    def take(self, payload: bytes) -> bool:
        if not self.is_paused:
            self.taken.append(payload)
        return not self.is_paused


def as_message(number: int) -> bytes:
    return router.ChatResponse(output_tokens=number, contents=["x" * 1000]).SerializeToString()


def packed(number: int) -> bytes:
    return pack_piece(1, number, ["x" * 1000])


@pytest.mark.parametrize("payload", [as_message, packed])
async def test_payloads_that_are_taken_return_credit_and_declined_ones_wait_for_the_reader(
    payload: Callable[[int], bytes],
) -> None:
    exchange, consumer = CreditCounter(), PausedConsumer()
    call = ClientCall(exchange, router.ChatResponse, unpack_piece, consumer)
    reading = asyncio.create_task(call.receive())
    await asyncio.sleep(0)
    payloads = [payload(number) for number in range(1, 2 * WINDOW_BYTES // len(payload(1)))]
    other_call = 9
    for each in payloads:
        arrive({1: call}, ((other_call, each), (1, each)))
    assert consumer.taken == payloads
    assert not reading.done()
    returned_bytes = exchange.credit_bytes[0]
    taken_bytes = sum(len(each) + MESSAGE_OVERHEAD_BYTES for each in payloads)
    assert taken_bytes - WINDOW_BYTES // 4 < returned_bytes <= taken_bytes
    consumer.is_paused = True
    later = [payload(number) for number in range(1000, 1040)]
    arrive({1: call}, ((1, each) for each in later[:-1]))
    consumer.is_paused = False
    # One that comes later is not taken before those that wait.
    arrive({1: call}, [(1, later[-1])])
    assert exchange.credit_bytes[0] == returned_bytes
    assert consumer.taken == payloads
    call.complete(b"")
    assert await reading is None
    # The reader offers what waited, in its order.
    assert consumer.taken == payloads + later
    assert exchange.credit_bytes[0] > returned_bytes


async def test_what_the_consumer_declines_is_read() -> None:
    consumer = PausedConsumer()
    call = ClientCall(CreditCounter(), router.ChatResponse, unpack_piece, consumer)
    consumer.is_paused = True
    arrive({1: call}, [(1, packed(1)), (1, as_message(2))])
    call.complete(b"")
    read = [await call.receive(), await call.receive(), await call.receive()]
    assert [None if response is None else response.output_tokens for response in read] == [1, 2, None]
