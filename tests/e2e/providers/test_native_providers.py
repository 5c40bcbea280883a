"""OpenAI's own client before vendors who do not speak its language."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.e2e.chats import QUESTION, WEATHER
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Upstream

ROUTES = """
[providers.anthropic]
kind = "anthropic"
base_url = "{base_url}"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "2026-10-21"

[providers.google]
kind = "gemini"
base_url = "GEMINI_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "v1"

[models.claude]
provider = "anthropic"
name = "claude-played"
context_tokens = 200000
max_output_tokens = 20000

[models.gemini]
provider = "google"
name = "gemini-played"
context_tokens = 200000
max_output_tokens = 20000

[classes.mezzo]
models = ["claude"]
[classes.forte]
models = ["gemini"]
[classes.fortissimo]
models = ["claude", "gemini"]
"""

# More marks of what is to be cached than Claude takes.
FIVE_CACHE_MARKS: Any = [
    {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
] * 5
TWO_CITIES = [{"city": "Paris"}, {"city": "Rome"}]
CLASSES = pytest.mark.parametrize("model", ["mezzo", "forte"])
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def vendors() -> Iterator[dict[str, Upstream]]:
    with UpstreamThread(AnthropicUpstream()) as anthropic, UpstreamThread(GeminiUpstream()) as google:
        yield {"mezzo": anthropic, "forte": google}


@pytest.fixture(scope="module")
def client(vendors: dict[str, Upstream]) -> Iterator[openai.OpenAI]:
    routes = ROUTES.replace("GEMINI_URL", vendors["forte"].base_url)
    with Service(vendors["mezzo"], {"VENDOR_KEY": "secret"}, routes=routes) as service:
        key = service.new_key(service.new_account())
        with openai.OpenAI(base_url=service.base_url, api_key=key, max_retries=0) as client:
            yield client


def ask(client: openai.OpenAI, *, stream: bool, **asked: Any) -> ChatCompletion:
    asked = {"messages": QUESTION, **asked}
    if not stream:
        completion: ChatCompletion = client.chat.completions.create(**asked)
        return completion
    with client.chat.completions.stream(**asked) as events:
        return events.get_final_completion()


def calls_for(model: str) -> AnthropicReply | GeminiReply:
    if model == "mezzo":
        calls = [("get_weather", [json.dumps(city)]) for city in TWO_CITIES]
        return AnthropicReply(contents=[], calls=calls, finish_reason="tool_use")
    return GeminiReply(contents=[], calls=[("get_weather", city) for city in TWO_CITIES])


@CLASSES
@BOTH_WAYS
def test_answer_is_openais(model: str, stream: bool, client: openai.OpenAI) -> None:
    completion = ask(client, stream=stream, model=model, temperature=0.5, stop=["END"], seed=7)
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello, world!", "stop")
    assert (completion.model, completion.object) == (model, "chat.completion")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (18, 7)
    assert completion.usage.prompt_tokens_details.cached_tokens == 5


@CLASSES
@BOTH_WAYS
def test_tools_are_called_and_their_results_go_back(
    model: str, stream: bool, client: openai.OpenAI, vendors: dict[str, Upstream]
) -> None:
    vendors[model].replies.append(calls_for(model))
    called = ask(client, stream=stream, model=model, tools=[WEATHER], tool_choice="required").choices[0]
    assert called.finish_reason == "tool_calls"
    calls = [call for call in called.message.tool_calls or () if call.type == "function"]
    assert [json.loads(call.function.arguments) for call in calls] == TWO_CITIES
    assert len({call.id for call in calls}) == 2
    results: list[ChatCompletionMessageParam] = [
        {"role": "tool", "tool_call_id": call.id, "content": "clear"} for call in reversed(calls)
    ]
    message = called.message.model_dump(exclude_none=True)
    messages = [*QUESTION, message, *results, {"role": "user", "content": "And tomorrow?"}]
    completion = ask(client, stream=stream, model=model, tools=[WEATHER], messages=messages)
    assert completion.choices[0].message.content == "Hello, world!"


def test_what_no_model_of_the_class_can_do_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="mezzo", messages=FIVE_CACHE_MARKS)
    assert refusal.value.param == "messages"


def test_what_another_model_of_the_class_can_do_is_done_by_it(
    client: openai.OpenAI, vendors: dict[str, Upstream]
) -> None:
    before = len(vendors["mezzo"].requests)
    completion = client.chat.completions.create(model="fortissimo", messages=FIVE_CACHE_MARKS)
    assert completion.choices[0].message.content == "Hello, world!"
    assert len(vendors["mezzo"].requests) == before


@CLASSES
def test_stream_that_a_vendor_cuts_ends_with_an_error(
    model: str, client: openai.OpenAI, vendors: dict[str, Upstream]
) -> None:
    cut = AnthropicReply(done=False, finish_reason=None) if model == "mezzo" else GeminiReply(finish_reason=None)
    vendors[model].replies.append(cut)
    seen: list[str] = []
    stream = client.chat.completions.create(model=model, messages=QUESTION, stream=True)
    with pytest.raises(openai.APIError):
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(seen) == "Hello, world!"


@BOTH_WAYS
@pytest.mark.parametrize(
    ("model", "ignored"), [("mezzo", "temperature, seed, top_k, logit_bias"), ("forte", "logit_bias")]
)
def test_client_is_told_what_the_vendor_does_not_take(
    client: openai.OpenAI, model: str, ignored: str, stream: bool
) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model=model,
        messages=QUESTION,
        temperature=0.5,
        seed=7,
        logit_bias={"50256": -100},
        reasoning_effort="low",
        stream=stream,
        extra_body={"top_k": 5},
    )
    assert answer.headers["x-legato-ignored"] == ignored
