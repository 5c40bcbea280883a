"""Loops of tool calls with models that think, by clients that know nothing of it, and by those that ask for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.e2e.chats import WEATHER
from tests.e2e.conftest import plain_http
from tests.e2e.raw_http import post_chat
from tests.e2e.transports import OverHttp, OverRpc, Told
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Upstream
from tests.support.upstreams.thinking import DONE, DeepSeekUpstream, ThinkingClaude, ThinkingGemini, thought_of

ROUTES: Final = """
[providers.deepseek]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
reasoning_needed = true

[providers.anthropic]
kind = "anthropic"
base_url = "CLAUDE_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "2026-10-21"
body = {{ thinking = {{ type = "enabled", budget_tokens = 1024 }} }}

[providers.google]
kind = "gemini"
base_url = "GEMINI_URL"
zero_retention = true
api_key_env = "VENDOR_KEY"
version = "v1"

[models.deepseek]
provider = "deepseek"
name = "deepseek-v4-pro"
context_tokens = 1000000
max_output_tokens = 200000

[models.claude]
provider = "anthropic"
name = "claude-opus-4-5"
context_tokens = 1000000
max_output_tokens = 200000

[models.gemini]
provider = "google"
name = "gemini-3-pro"
context_tokens = 1000000
max_output_tokens = 200000

[classes.mezzo]
models = ["deepseek"]
[classes.forte]
models = ["claude"]
[classes.fortissimo]
models = ["gemini"]
"""

TURNS: Final = 20
QUESTION: Final = {"role": "user", "content": "What is the weather?"}
each_class = pytest.mark.parametrize("model", ["mezzo", "forte", "fortissimo"])
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[dict[str, Any]]:
    with (
        UpstreamThread(DeepSeekUpstream()) as deepseek,
        UpstreamThread(ThinkingClaude()) as claude,
        UpstreamThread(ThinkingGemini()) as gemini,
    ):
        yield {"mezzo": deepseek, "forte": claude, "fortissimo": gemini}


@pytest.fixture(scope="module")
def thinking_service(vendors: dict[str, Upstream]) -> Iterator[Service]:
    routes = ROUTES.replace("CLAUDE_URL", vendors["forte"].base_url)
    routes = routes.replace("GEMINI_URL", vendors["fortissimo"].base_url)
    # Any router of the fleet opens what another has sealed.
    with Service(vendors["mezzo"], {"VENDOR_KEY": "secret"}, routes=routes, routers=2) as service:
        yield service


@pytest.fixture(autouse=True)
def reset(vendors: dict[str, Any]) -> None:
    for vendor in vendors.values():
        vendor.loop.loops, vendor.loop.calls_at_once, vendor.loop.size = TURNS, 2, 0
        vendor.refused.clear()
        vendor.requests.clear()


@pytest.fixture(scope="module")
def thinking_key(thinking_service: Service) -> str:
    return thinking_service.new_key(thinking_service.new_account())


def ask(client: openai.OpenAI, *, stream: bool, **asked: Any) -> ChatCompletion:
    if not stream:
        completion: ChatCompletion = client.chat.completions.create(**asked)
        return completion
    with client.chat.completions.stream(**asked) as events:
        return events.get_final_completion()


def results_of(calls: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call.id, "content": "Rain."} for call in calls]


@each_class
@both_ways
def test_openais_own_client_goes_through_a_long_loop(
    model: str, stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    messages: list[Any] = [dict(QUESTION)]
    address = thinking_service.base_url
    with openai.OpenAI(base_url=address, api_key=thinking_key, max_retries=0, http_client=plain_http()) as client:
        for _ in range(TURNS + 1):
            message = ask(client, stream=stream, model=model, messages=messages, tools=[WEATHER]).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            messages += results_of(message.tool_calls or ())
    assert messages[-1]["content"] == DONE
    vendor = vendors[model]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (TURNS, TURNS)
    # Nobody asked to be told.
    assert "thought" not in json.dumps(messages)


def _past(told: Told) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in told.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant"}
    if told.text or not calls:
        message["content"] = told.text
    if calls:
        message["tool_calls"] = calls
    return [message, *results_of(told.tool_calls)]


@each_class
@both_ways
def test_program_goes_through_a_long_loop(
    model: str, stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    messages: list[dict[str, Any]] = [dict(QUESTION)]
    told = Told()
    with OverRpc(thinking_service) as programs:
        for _ in range(TURNS + 1):
            body = {"model": model, "messages": messages, "tools": [WEATHER], "stream": stream}
            told = programs.ask(thinking_key, body)
            assert told.failure is None
            messages += _past(told)
    assert told.text == DONE
    assert told.reasoning == told.reasoning_data == ""
    vendor = vendors[model]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (TURNS, TURNS)


@each_class
@both_ways
@pytest.mark.parametrize(
    "asked", [{"include_reasoning": True}, {"reasoning": {"exclude": False}}], ids=["flag", "object"]
)
def test_client_that_asks_is_told_what_the_model_thinks_and_sends_it_back(
    asked: Mapping[str, Any],
    model: str,
    stream: bool,
    thinking_service: Service,
    thinking_key: str,
    vendors: dict[str, Any],
) -> None:
    vendor = vendors[model]
    # Too long for an id: only what the client has been told can come back.
    vendor.loop.loops, vendor.loop.size = 2, 0 if model == "fortissimo" else 60_000
    body = {"model": model, "tools": [WEATHER], "stream": stream}
    transport = OverHttp(thinking_service)
    messages: list[dict[str, Any]] = [dict(QUESTION)]
    for turn in range(3):
        told = transport.ask(thinking_key, {**body, **asked, "messages": messages})
        assert told.failure is None
        if turn < 2:
            assert told.reasoning == thought_of(turn, vendor.loop.size)
            assert told.reasoning_data
        message, *results = _past(told)
        details = [{"type": "reasoning.encrypted", "format": "legato-v1", "data": told.reasoning_data}]
        messages += [{**message, "reasoning_content": told.reasoning, "reasoning_details": details}, *results]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (2, 2)


@each_class
@both_ways
def test_anthropics_own_client_gets_thoughts_in_blocks_and_sends_them_back(
    model: str, stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    vendor = vendors[model]
    vendor.loop.loops, vendor.loop.size = 2, 0 if model == "fortissimo" else 60_000
    tool = {"name": WEATHER["function"]["name"], "input_schema": WEATHER["function"]["parameters"]}
    asked: dict[str, Any] = {"model": model, "max_tokens": 150_000, "tools": [tool], "thinking": {"type": "adaptive"}}
    messages: list[Any] = [dict(QUESTION)]
    address, http = thinking_service.base_url.removesuffix("/v1"), anthropic.DefaultHttpxClient(verify=False)
    with anthropic.Anthropic(
        base_url=address, api_key=thinking_key, max_retries=0, http_client=http, timeout=60
    ) as client:
        for turn in range(3):
            if stream:
                with client.messages.stream(**asked, messages=messages) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**asked, messages=messages)
            thoughts = [block for block in message.content if block.type == "thinking"]
            assert [block.thinking for block in thoughts] == ([thought_of(turn, vendor.loop.size)] if turn < 2 else [])
            assert message.content[0] in (thoughts or message.content)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "Rain."}
                for block in message.content
                if block.type == "tool_use"
            ]
            content = [block.model_dump(exclude_none=True) for block in message.content]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (2, 2)


@pytest.mark.parametrize(("keep", "returned"), [({"type": "thinking_turns", "value": 1}, 1), ("all", 2), (None, 1)])
def test_thoughts_of_older_turns_are_cleared_for_clients_that_ask(
    keep: Any, returned: int, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    """Those too that the ids of calls have."""
    vendor = vendors["forte"]
    vendor.loop.loops = 3
    edit = {"type": "clear_thinking_20251015", **({} if keep is None else {"keep": keep})}
    asked: dict[str, Any] = {
        "model": "forte",
        "max_tokens": 20_000,
        "tools": [{"name": WEATHER["function"]["name"], "input_schema": WEATHER["function"]["parameters"]}],
        "thinking": {"type": "adaptive"},
        "extra_body": {"context_management": {"edits": [edit]}},
    }
    messages: list[Any] = [dict(QUESTION)]
    address, http = thinking_service.base_url.removesuffix("/v1"), anthropic.DefaultHttpxClient(verify=False)
    with anthropic.Anthropic(base_url=address, api_key=thinking_key, max_retries=0, http_client=http) as client:
        for turn in range(3):
            message = client.messages.create(**asked, messages=messages)
            cleared = message.model_dump()["context_management"]["applied_edits"]
            assert [each["cleared_thinking_turns"] for each in cleared] == ([1] if turn == 2 and returned == 1 else [])
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "Rain."}
                for block in message.content
                if block.type == "tool_use"
            ]
            content = [block.model_dump(exclude_none=True) for block in message.content]
            said = [*results, {"type": "text", "text": "And tomorrow?"}]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": said}]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (2, returned)


@each_class
@both_ways
def test_openais_client_of_responses_gets_thoughts_in_items_and_sends_them_back(
    model: str, stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    vendor = vendors[model]
    vendor.loop.loops, vendor.loop.size = 2, 0 if model == "fortissimo" else 60_000
    asked: dict[str, Any] = {
        "model": model,
        "tools": [{"type": "function", **WEATHER["function"]}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
    }
    items: list[Any] = [dict(QUESTION)]
    address = thinking_service.base_url
    with openai.OpenAI(base_url=address, api_key=thinking_key, max_retries=0, http_client=plain_http()) as client:
        for turn in range(3):
            if stream:
                with client.responses.stream(**asked, input=items) as events:
                    response = events.get_final_response()
            else:
                response = client.responses.create(**asked, input=items)
            thoughts = [item for item in response.output if item.type == "reasoning"]
            summaries = [part.text for item in thoughts for part in item.summary]
            assert summaries == ([thought_of(turn, vendor.loop.size)] if turn < 2 else [])
            assert all(item.encrypted_content for item in thoughts)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": "Rain."}
                for item in response.output
                if item.type == "function_call"
            ]
    assert vendor.refused == []
    assert (vendor.loop.asked, vendor.loop.returned) == (2, 2)


@each_class
@both_ways
def test_program_that_asks_is_told_the_same_as_a_client_over_http(
    model: str, stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    vendors[model].loop.loops = 1
    body = {"model": model, "messages": [QUESTION], "tools": [WEATHER], "stream": stream, "include_reasoning": True}
    over_http = OverHttp(thinking_service).ask(thinking_key, body)
    with OverRpc(thinking_service) as programs:
        over_rpc = programs.ask(thinking_key, body)
        assert over_rpc.reasoning == over_http.reasoning == thought_of(0)
        message, *results = _past(over_rpc)
        details = [{"data": over_rpc.reasoning_data}]
        past = {**message, "reasoning_content": over_rpc.reasoning, "reasoning_details": details}
        last = programs.ask(thinking_key, {**body, "messages": [QUESTION, past, *results]})
    assert (last.text, last.failure) == (DONE, None)
    assert vendors[model].loop.returned == 1


@both_ways
def test_answer_has_no_other_bytes_without_asking(
    stream: bool, thinking_service: Service, thinking_key: str, vendors: dict[str, Any]
) -> None:
    for asked in ({}, {"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        body = {"model": "mezzo", "messages": [QUESTION], "tools": [WEATHER], "stream": stream, **asked}
        answer = post_chat(thinking_service, thinking_key, body)
        assert answer.status == 200
        assert b"thought" not in answer.body
        assert b'"reasoning_content"' not in answer.body
        assert b'"reasoning_details"' not in answer.body


def test_reasoning_is_charged_as_output_whether_it_is_shown_or_not(
    thinking_service: Service, vendors: dict[str, Any]
) -> None:
    spent = []
    for shown in (True, False):
        account = thinking_service.new_account()
        key = thinking_service.new_key(account)
        body = {"model": "mezzo", "messages": [QUESTION], "tools": [WEATHER], "include_reasoning": shown}
        before = thinking_service.settled_balance_nanos(account)
        told = OverHttp(thinking_service).ask(key, {**body, "stream": True})
        assert told.usage is not None
        assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (900, 70)
        assert (told.usage.cache_write_tokens, told.usage.reasoning_tokens) == (4, 50)
        spent.append(before - thinking_service.settled_balance_nanos(account))
    assert spent[0] == spent[1] > 0
