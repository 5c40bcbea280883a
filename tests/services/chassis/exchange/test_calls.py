"""Questions and conversations on an exchange that stands."""

import asyncio

import pytest

from protos.metering.v1 import metering_pb2 as metering
from protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import ExchangeClient
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
