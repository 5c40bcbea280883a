"""Questions and conversations on an exchange that stands."""

import asyncio
from collections import Counter

import pytest

from protos.metering.v1 import metering_pb2 as metering
from protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import ClientCall, ExchangeClient
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from tests.services.chassis.exchange.talker import Talker, ask, opening


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
        await client.call("GetBalance", no_text, metering.GetBalanceResponse, 5)
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


class CreditCounter:
    """An exchange that counts what its calls return."""

    def __init__(self) -> None:
        self.credit_bytes: Counter[int] = Counter()

    def send(self, call_id: int, payload: bytes) -> None: ...

    def credit(self, call_id: int, credit_bytes: int) -> None:
        self.credit_bytes[call_id] += credit_bytes

    def forget(self, call_id: int) -> None: ...


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


async def test_failure_of_a_consumer_is_raised_to_its_reader_and_spares_the_exchange(client: ExchangeClient) -> None:
    def fail(response: router.ChatResponse) -> bool:
        raise ValueError("a mistake of the consumer")

    call = client.open("Chat", opening(pieces=3), router.ChatResponse)
    with pytest.raises(ValueError, match="of the consumer"):
        await call.receive(fail)
    assert await ask(client, "another") == "another"
