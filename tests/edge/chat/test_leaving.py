"""Clients that leave before anything is delivered: now and then for nothing, by habit not."""

import asyncio
from collections.abc import Callable

import pytest

from edge.wire.body_reader import ClientGone
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.chat_harness import ChatHarness, Conversing, charged, piece, saying, silence
from tests.edge.metering_harness import ANN, cost
from tests.support.waiting import until

PROMPT_TOKENS = 15_000
LONG = b'[{"role":"user","content":"' + b"word " * 12_000 + b'"}]'
SHORT = b'[{"role":"user","content":"Hi"}]'
ACCEPTED = pb.ChatResponse(accepted=True, prompt_tokens=PROMPT_TOKENS)


async def accept_and_pause(conversation: Conversing) -> None:
    await conversation.send(ACCEPTED)
    await silence(conversation)


async def leave(chat_harness: ChatHarness, number: int, messages_json: bytes = LONG, *, stream: bool = True) -> int:
    """Leaves once the prompt is accepted; returns the cost."""
    before_nanos = await charged(chat_harness)
    leaving: list[Callable[[], None]] = []
    chat = chat_harness.chat(number, stream=stream, messages_json=messages_json)
    chatting = asyncio.create_task(chat.run(leaving.append))
    await until(lambda: chat._request.accepted_prompt_tokens > 0)
    leaving[0]()
    with pytest.raises(ClientGone):
        await chatting
    return await charged(chat_harness) - before_nanos


@pytest.mark.parametrize("stream", [True, False])
async def test_prompts_of_a_client_that_makes_a_habit_of_leaving_are_charged(
    chat_harness: ChatHarness, stream: bool
) -> None:
    [router] = await chat_harness.add_routers(accept_and_pause)
    paid = [await leave(chat_harness, number, stream=stream) for number in range(4)]
    # From then on short ones, too.
    paid.append(await leave(chat_harness, 4, SHORT, stream=stream))
    assert paid == [0, 0, 0, cost(PROMPT_TOKENS, 0), cost(PROMPT_TOKENS, 0)]
    assert [opening.tells_acceptance for opening in router.openings] == [True] * 5
    hold = await chat_harness.metering.read_hold(3)
    assert (hold.state, hold.basis, hold.end) == ("settled", "counted", "client_gone")
    assert (hold.prompt_tokens, hold.completion_tokens) == (PROMPT_TOKENS, 0)


async def test_client_that_leaves_short_prompts_is_not_asked_about_and_pays_nothing(chat_harness: ChatHarness) -> None:
    [router] = await chat_harness.add_routers(accept_and_pause)
    assert [await leave(chat_harness, number, SHORT) for number in range(6)] == [0] * 6
    assert not any(opening.tells_acceptance for opening in router.openings)


async def test_request_that_fails_is_free_though_leaving_is_a_habit(chat_harness: ChatHarness) -> None:
    async def accept_and_fail(conversation: Conversing) -> None:
        await conversation.send(ACCEPTED)
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model's answer was interrupted."))

    make_it_a_habit(chat_harness)
    [router] = await chat_harness.add_routers(accept_and_fail)
    with pytest.raises(LegatoError):
        await chat_harness.chat().run()
    assert router.openings[0].tells_acceptance
    assert await charged(chat_harness) == 0


async def test_prompt_that_no_provider_has_is_free_though_leaving_is_a_habit(chat_harness: ChatHarness) -> None:
    make_it_a_habit(chat_harness)
    [router] = await chat_harness.add_routers(silence)
    leaving: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat_harness.chat(messages_json=LONG).run(leaving.append))
    await until(lambda: len(router.openings) == 1)
    leaving[0]()
    with pytest.raises(ClientGone):
        await chatting
    assert await charged(chat_harness) == 0


async def test_what_was_delivered_is_charged_as_ever_though_leaving_is_a_habit(chat_harness: ChatHarness) -> None:
    async def accept_and_speak(conversation: Conversing) -> None:
        await saying(ACCEPTED, piece("Hel", 1))(conversation)
        await silence(conversation)

    make_it_a_habit(chat_harness)
    await chat_harness.add_routers(accept_and_speak)
    leaving: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat_harness.chat().run(leaving.append))
    await until(lambda: chat_harness.text == "Hel")
    leaving[0]()
    with pytest.raises(ClientGone):
        await chatting
    assert await charged(chat_harness) == cost(20, 1)


def make_it_a_habit(chat_harness: ChatHarness) -> None:
    for number in range(3):
        chat_harness.metering.unpaid_prompts.record(ANN.account_id, f"before {number}", 20_000)
