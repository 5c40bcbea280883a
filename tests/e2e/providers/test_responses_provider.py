"""Loops of tool calls with OpenAI's models that refuse tools over chat completions, and what they cost."""

import json
from collections.abc import Iterator
from typing import Any, Final

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.e2e.chats import WEATHER
from tests.e2e.conftest import plain_http
from tests.e2e.transports import OverHttp
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.responses import ResponsesReply, custom_call_item
from tests.support.upstreams.thinking import DONE
from tests.support.upstreams.thinking_responses import ThinkingOpenAI, ThinkingResponses

ROUTES: Final = """
[providers.openai]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
api = "auto"
custom_tools = true

[providers.responses]
kind = "responses"
base_url = "RESPONSES_URL"
zero_retention = true

[models.deployment]
provider = "openai"
name = "our-deployment"
context_tokens = 1000000
max_output_tokens = 200000

[models.sol]
provider = "openai"
name = "gpt-6.1-sol"
context_tokens = 1000000
max_output_tokens = 200000

[models.other]
provider = "responses"
name = "vendor-model"
context_tokens = 1000000
max_output_tokens = 200000

[classes.mezzo]
models = ["deployment"]
[classes.forte]
models = ["sol"]
[classes.fortissimo]
models = ["other"]
"""

TURNS: Final = 20
QUESTION: Final = {"role": "user", "content": "What is the weather?"}
each_class = pytest.mark.parametrize("model", ["mezzo", "forte", "fortissimo"])
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[dict[str, Any]]:
    with UpstreamThread(ThinkingOpenAI()) as vendor, UpstreamThread(ThinkingResponses()) as other:
        yield {"mezzo": vendor, "forte": vendor, "fortissimo": other}


@pytest.fixture(scope="module")
def responses_service(vendors: dict[str, Any]) -> Iterator[Service]:
    routes = ROUTES.replace("RESPONSES_URL", vendors["fortissimo"].base_url)
    # Any router of the fleet opens what another has sealed.
    with Service(vendors["mezzo"], routes=routes, routers=2) as service:
        yield service


@pytest.fixture(autouse=True)
def reset(vendors: dict[str, Any]) -> None:
    for vendor in vendors.values():
        vendor.loop.loops, vendor.loop.calls_at_once, vendor.loop.size = TURNS, 2, 0
        vendor.refused.clear()
        vendor.requests.clear()


def ask(client: openai.OpenAI, *, stream: bool, **asked: Any) -> ChatCompletion:
    if not stream:
        completion: ChatCompletion = client.chat.completions.create(**asked)
        return completion
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        return events.get_final_completion()


@each_class
@both_ways
def test_openais_own_client_goes_through_a_long_loop_and_is_charged_for_each_turn(
    model: str, stream: bool, responses_service: Service, vendors: dict[str, Any]
) -> None:
    account = responses_service.new_account()
    key = responses_service.new_key(account)
    messages: list[Any] = [dict(QUESTION)]
    counted = []
    address = responses_service.base_url
    with openai.OpenAI(base_url=address, api_key=key, max_retries=0, http_client=plain_http()) as client:
        for _ in range(TURNS + 1):
            completion = ask(client, stream=stream, model=model, messages=messages, tools=[WEATHER])
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            results = [
                {"role": "tool", "tool_call_id": call.id, "content": "Rain."} for call in message.tool_calls or ()
            ]
            messages += results
            assert completion.usage is not None
            counted.append((completion.usage.prompt_tokens, completion.usage.completion_tokens))
    assert messages[-1]["content"] == DONE
    vendor = vendors[model]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (TURNS, TURNS)
    # Nobody asked to be told.
    assert "thought" not in json.dumps(messages)
    # By the vendor's own count, and nothing for what it refused.
    assert counted == [(900, 70)] * TURNS + [(18, 7)]
    responses_service.settled_balance_nanos(account)
    holds = responses_service.holds(account)
    assert len(holds) == TURNS + 1
    assert sorted((hold.prompt_tokens, hold.completion_tokens) for hold in holds) == sorted(counted)
    assert responses_service.audit() == []


@both_ways
def test_custom_tool_is_the_models_own_with_its_grammar(
    stream: bool, responses_service: Service, vendors: dict[str, Any]
) -> None:
    vendor, given = vendors["forte"], '*** Begin\n+"é"'
    grammar = {"syntax": "lark", "definition": "start: /.+/s"}
    tool = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": grammar}}}
    key = responses_service.new_key(responses_service.new_account())
    vendor.replies.append(ResponsesReply(contents=[], said_items=[custom_call_item("call_1", "patch", given)]))
    asked = {"model": "forte", "tools": [tool], "stream": stream}
    told = OverHttp(responses_service).ask(key, {**asked, "messages": [QUESTION]})
    assert told.failure is None
    [call] = told.tool_calls
    assert (call.name, call.arguments, call.is_custom) == ("patch", given, True)
    said = {"id": call.id, "type": "custom", "custom": {"name": "patch", "input": given}}
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    vendor.replies.append(ResponsesReply())
    past = {"role": "assistant", "content": None, "tool_calls": [said]}
    assert OverHttp(responses_service).ask(key, {**asked, "messages": [QUESTION, past, result]}).failure is None
    assert vendor.refused == []
    request = vendor.requests[-1].json
    assert request["tools"] == [{"type": "custom", "name": "patch", "format": {"type": "grammar", **grammar}}]
    called, answered = request["input"][-2:]
    assert (called["type"], called["input"]) == ("custom_tool_call", given)
    assert (answered["type"], answered["call_id"]) == ("custom_tool_call_output", called["call_id"])


@both_ways
def test_client_that_asks_is_told_the_summary_and_what_is_ignored(
    stream: bool, responses_service: Service, vendors: dict[str, Any]
) -> None:
    key = responses_service.new_key(responses_service.new_account())
    body = {
        "model": "fortissimo",
        "messages": [QUESTION],
        "tools": [WEATHER],
        "stream": stream,
        "include_reasoning": True,
        "seed": 7,
    }
    told = OverHttp(responses_service).ask(key, body)
    assert told.failure is None
    assert told.reasoning.startswith("Turn 0")
    assert told.reasoning_data


def test_what_is_learned_is_shown(responses_service: Service, vendors: dict[str, Any]) -> None:
    key = responses_service.new_key(responses_service.new_account())
    for _ in range(4):
        # Each of the two routers learns for itself.
        told = OverHttp(responses_service).ask(key, {"model": "mezzo", "messages": [QUESTION], "tools": [WEATHER]})
        assert told.failure is None
    shown = responses_service.legato("routes", "show")
    assert "tools_without_reasoning yes" in json.dumps(shown)


@both_ways
def test_refusal_is_the_clients_to_read(stream: bool, responses_service: Service, vendors: dict[str, Any]) -> None:
    vendors["fortissimo"].loop.loops = 0
    vendors["fortissimo"].replies.append(ResponsesReply(contents=[], refusals=["I cannot."]))
    key = responses_service.new_key(responses_service.new_account())
    address = responses_service.base_url
    with openai.OpenAI(base_url=address, api_key=key, max_retries=0, http_client=plain_http()) as client:
        completion = ask(client, stream=stream, model="fortissimo", messages=[QUESTION])
    assert completion.choices[0].message.refusal == "I cannot."
