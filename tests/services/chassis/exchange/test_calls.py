"""Calls of an exchange, without one around them: who gets what arrives, and when its credit is returned."""

import asyncio
import struct
from collections import Counter

from protos.router.v1 import router_pb2 as router
from services.chassis.exchange import ClientCall
from services.chassis.exchange.calls import arrive_packed
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


async def test_consumed_responses_return_credit_and_declined_ones_wait_for_the_reader() -> None:
    exchange = CreditCounter()
    call = ClientCall(exchange, router.ChatResponse)
    consumed: list[int] = []
    is_paused = False

    def consume(response: router.ChatResponse) -> bool:
        if not is_paused:
            consumed.append(response.output_tokens)
        return not is_paused

    def response(number: int) -> bytes:
        return router.ChatResponse(output_tokens=number, contents=["x" * 1000]).SerializeToString()

    reading = asyncio.create_task(call.receive(consume))
    await asyncio.sleep(0)
    taken = 2 * WINDOW_BYTES // len(response(1))
    for number in range(1, taken + 1):
        call.arrive(response(number))
    assert consumed == list(range(1, taken + 1))
    assert not reading.done()
    returned_bytes = exchange.credit_bytes[0]
    consumed_bytes = sum(len(response(number)) + MESSAGE_OVERHEAD_BYTES for number in consumed)
    assert consumed_bytes - WINDOW_BYTES // 4 < returned_bytes <= consumed_bytes
    is_paused = True
    for number in range(taken + 1, taken + 40):
        call.arrive(response(number))
    is_paused = False
    # One that comes later is not taken before those that wait.
    call.arrive(response(taken + 40))
    assert exchange.credit_bytes[0] == returned_bytes
    assert len(consumed) == taken
    call.complete(b"")
    assert await reading is None
    # The reader offers what waited, in its order.
    assert consumed == list(range(1, taken + 41))
    assert exchange.credit_bytes[0] > returned_bytes


async def test_packed_responses_return_credit_once_and_declined_ones_wait_for_the_reader() -> None:
    exchange = CreditCounter()
    call = ClientCall(exchange, router.ChatResponse, unpack_piece)
    consumed: list[bytes] = []
    packed = [pack_piece(1, number, ["x" * 1000]) for number in range(1, 100)]
    declined_at = 70

    def consume(piece: bytes) -> bool:
        if len(consumed) < declined_at:
            consumed.append(piece)
            return True
        raise ValueError("a mistake")

    reading = asyncio.create_task(call.receive(None, consume))
    await asyncio.sleep(0)
    unknown = 9
    for piece in packed:
        arrive_packed({1: call}, _message_part(unknown, piece) + _message_part(1, piece))
    assert consumed == packed[:declined_at]
    read = [await reading]
    call.complete(b"")
    while (response := await call.receive()) is not None:
        read.append(response)
    assert read == [unpack_piece(piece) for piece in packed[declined_at:]]
    sent_bytes = sum(len(piece) + MESSAGE_OVERHEAD_BYTES for piece in packed)
    assert sent_bytes - WINDOW_BYTES // 4 < exchange.credit_bytes[0] <= sent_bytes


def _message_part(call_id: int, payload: bytes) -> bytes:
    return struct.pack("<QI", call_id, len(payload)) + payload
