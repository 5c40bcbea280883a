"""A model that refuses, with the official client: it tells a refusal from an answer, and expects no JSON of it."""

from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.e2e.chats import CHAT, QUESTION
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

REFUSAL = ["I", " cannot", " help."]
REFUSING = Reply(contents=[], refusals=REFUSAL)
STARTING_NANOS = 5 * 10**9


class Weather(BaseModel):
    sky: str


@pytest.mark.parametrize("model", ["mezzo", "fortissimo"])
def test_answer_that_was_to_be_parsed_is_a_refusal(client: openai.OpenAI, upstream: Upstream, model: str) -> None:
    upstream.replies.append(REFUSING)
    completion = client.chat.completions.parse(model=model, messages=QUESTION, response_format=Weather)
    # Answers are streamed to us even when they are wanted whole.
    assert upstream.requests[0].json["stream"]
    [choice] = completion.choices
    assert (choice.message.refusal, choice.message.content, choice.message.parsed) == ("I cannot help.", None, None)
    assert choice.finish_reason == "stop"


def test_stream_that_was_to_be_parsed_is_a_refusal(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(REFUSING)
    with client.chat.completions.stream(model="mezzo", messages=QUESTION, response_format=Weather) as stream:
        heard = [event.delta for event in stream if event.type == "refusal.delta"]
        message = stream.get_final_completion().choices[0].message
    assert heard == REFUSAL
    assert (message.refusal, message.content, message.parsed) == ("I cannot help.", None, None)


def test_stream_has_the_refusal_in_chunks_of_its_own(service: Service, upstream: Upstream, api_key: str) -> None:
    upstream.replies.append(REFUSING)
    *chunks, counted, done = post_chat(service, api_key, CHAT).events
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None},
        *({"refusal": piece} for piece in REFUSAL),
        {},
    ]
    assert counted["usage"]["completion_tokens"] == 7
    assert done == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_refusal_costs_what_an_answer_of_its_length_does(service: Service, upstream: Upstream, stream: bool) -> None:
    chat = {"model": "mezzo", "messages": QUESTION, "stream": stream}
    charges = []
    for reply in (Reply(contents=REFUSAL, usage=None), Reply(contents=[], refusals=REFUSAL, usage=None)):
        account = service.new_account()
        upstream.replies.append(reply)
        assert post_chat(service, service.new_key(account), chat).status == 200
        charges.append(STARTING_NANOS - service.settled_balance_nanos(account))
        [row] = service.usage(account)
        assert row.usage.completion_tokens == 4
    assert charges[0] == charges[1] > 0


def test_client_that_leaves_pays_for_what_it_heard_of_a_refusal(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    upstream.replies.append(Reply(contents=[], refusals=REFUSAL, stall_after=3))
    chat = OpenChat(service, api_key, CHAT)
    chat.read_until(b'" cannot"')
    chat.leave()
    [row] = wait_until(lambda: service.usage(account))
    assert row.usage.completion_tokens == 2


def test_conversation_goes_on_after_a_refusal(client: openai.OpenAI, upstream: Upstream) -> None:
    """The client sends the message back as it got it."""
    upstream.replies.append(REFUSING)
    refused = client.chat.completions.create(model="mezzo", messages=QUESTION).choices[0].message
    again: Any = [*QUESTION, refused.model_dump(), *QUESTION]
    assert client.chat.completions.create(model="mezzo", messages=again).choices[0].message.content
    assert upstream.requests[-1].json["messages"][-2]["refusal"] == "I cannot help."
