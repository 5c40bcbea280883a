"""The headers of an answer, streamed or whole, and signs of life in a stream whose first token takes long."""

import asyncio
from typing import Any

import pytest

from legato_protos.router.v1.router_pb2 import ChatResponse, Started
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.response_writer import COMMENT
from services.chassis.sentence import Sentence
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, Script, charged, end, piece, saying
from tests.edge.metering_harness import cost
from tests.support.waiting import until


@pytest.mark.parametrize("stream", [True, False])
async def test_model_that_answers_says_what_is_ignored(chat_harness: ChatHarness, stream: bool) -> None:
    """The one before it, which did not answer, took less."""
    started = ChatResponse(started=Started(class_id="forte", max_tokens=5, attempt=2, ignored=["logit_bias"]))
    await chat_harness.add_routers(saying(ChatResponse(ignored=["seed"]), started, piece("Hello", 1), end(1)))
    await chat_harness.chat(stream=stream).run()
    assert chat_harness.headers[b"x-legato-ignored"] == b"logit_bias"


def saying_after_a_while(chat_harness: ChatHarness, *responses: Any) -> Script:
    """Once its client has got two signs of life."""

    async def script(conversation: Conversing) -> None:
        await until(lambda: chat_harness.received.count(COMMENT) >= 2)
        await saying(*responses)(conversation)

    return script


async def test_stream_whose_first_token_takes_long_is_kept_alive_until_then(chat_harness: ChatHarness) -> None:
    await chat_harness.add_routers(saying_after_a_while(chat_harness, piece("Hel", 1), piece("lo", 2), end(2)))
    await chat_harness.chat(keepalive_s=0.02).run()
    assert chat_harness.text == "Hello"
    assert chat_harness.events[-1] == "[DONE]"
    assert COMMENT not in chat_harness.received[chat_harness.received.index(b"Hel") :]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 2)


async def test_what_is_ignored_is_known_before_the_first_sign_of_life(chat_harness: ChatHarness) -> None:
    async def script(conversation: Conversing) -> None:
        await conversation.send(ChatResponse(ignored=["seed"]))
        await saying_after_a_while(chat_harness, piece("Hello", 1), end(1))(conversation)

    await chat_harness.add_routers(script)
    await chat_harness.chat(keepalive_s=0.2).run()
    assert chat_harness.headers[b"x-legato-ignored"] == b"seed"
    assert chat_harness.text == "Hello"


async def test_what_fails_after_a_sign_of_life_is_told_by_an_event_and_free(chat_harness: ChatHarness) -> None:
    async def fail(conversation: Conversing) -> None:
        await saying_after_a_while(chat_harness)(conversation)
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model is not available right now."))

    await chat_harness.add_routers(fail)
    await chat_harness.chat(keepalive_s=0.02).run()
    assert (chat_harness.status, [list(event) for event in chat_harness.events]) == (200, [["error"]])
    assert await charged(chat_harness) == 0
    assert (await chat_harness.metering.read_hold(7)).end == "refused"


async def test_whole_answer_is_not_kept_alive(chat_harness: ChatHarness) -> None:
    async def slowly(conversation: Conversing) -> None:
        await asyncio.sleep(0.1)
        await saying(piece("Hello", 1), end(1))(conversation)

    await chat_harness.add_routers(slowly)
    await chat_harness.chat(stream=False, keepalive_s=0.01).run()
    assert chat_harness.received.startswith(b"{")
