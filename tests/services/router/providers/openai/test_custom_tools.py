"""Custom tools over OpenAI's two wires: what models are told of them, and how they call them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from services.router.providers.base import ProviderCall
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.responses.provider import ResponsesProvider
from services.router.schema.tools import Tools
from services.rules.custom_tools import MARK, CustomForm, to_arguments
from tests.services.router.providers.asking import CALL, calls_of, changed, finish_of, opened, pieces_of
from tests.support.upstreams.openai import Reply
from tests.support.upstreams.responses import OpenAIApis, ResponsesReply, call_item, custom_call_item

INPUT: Final = 'a\n"é" 😀'
GRAMMAR: Final = {"syntax": "lark", "definition": 'start: "a"'}
FUNCTIONS: Final = [
    {"type": "function", "function": {"name": "weather"}},
    {"type": "function", "function": {"name": "patch", "parameters": {}, MARK: CustomForm("P.", **GRAMMAR)}},
    {"type": "function", "function": {"name": "shell", "parameters": {}, MARK: CustomForm()}},
]
MESSAGES: Final = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "patch", "arguments": to_arguments(INPUT)}},
            {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            {"id": "call_3", "type": "function", "function": {"name": "shell", "arguments": "unformed"}},
        ],
    },
    *({"role": "tool", "tool_call_id": f"call_{number}", "content": "done"} for number in (1, 2, 3)),
]
# With an effort, which the model then has, it takes tools over chat completions.
CHAT_MODEL: Final = "gpt-5.1"
RESPONSES_MODEL: Final = "gpt-6-sol"


def calling(model_name: str, choice: object = None, *, stream: bool = True) -> ProviderCall:
    call = changed(CALL, messages_json=msgspec.json.encode(MESSAGES), parameters_json=b'{"reasoning_effort":"none"}')
    choice_json = b"" if choice is None else msgspec.json.encode(choice)
    tools = Tools.read(msgspec.json.encode(FUNCTIONS), choice_json)
    return replace(call, model_name=model_name, tools=tools, stream=stream)


@pytest.fixture
async def upstream() -> AsyncIterator[OpenAIApis]:
    async with OpenAIApis() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: OpenAIApis) -> AsyncIterator[ResponsesProvider]:
    provider = opened(ResponsesProvider, upstream.base_url, api="auto", allowed_tools=True, custom_tools=True)
    yield provider
    await provider.aclose()


def chosen(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


ALLOWED: Final = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [chosen("weather"), chosen("patch")]},
}


async def test_chat_completions_have_the_tools_the_choice_and_the_calls(
    upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    await pieces_of(provider, calling(CHAT_MODEL, chosen("patch")))
    await pieces_of(provider, calling(CHAT_MODEL, ALLOWED))
    first, second = (request.json for request in upstream.requests)
    weather, patch, shell = first["tools"]
    assert weather == FUNCTIONS[0]
    form = {"type": "grammar", "grammar": GRAMMAR}
    assert patch == {"type": "custom", "custom": {"name": "patch", "description": "P.", "format": form}}
    assert shell == {"type": "custom", "custom": {"name": "shell"}}
    assert first["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}}
    assert [tool["type"] for tool in second["tool_choice"]["allowed_tools"]["tools"]] == ["function", "custom"]
    calls = first["messages"][1]["tool_calls"]
    assert calls[0] == {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": INPUT}}
    assert (calls[1], calls[2]["custom"]["input"]) == (MESSAGES[1]["tool_calls"][1], "unformed")  # type: ignore[index]
    assert first["messages"][2:] == MESSAGES[2:]


async def test_responses_have_the_tools_the_choice_and_the_calls(
    upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    await pieces_of(provider, calling(RESPONSES_MODEL, chosen("patch")))
    await pieces_of(provider, calling(RESPONSES_MODEL, ALLOWED))
    assert upstream.refused == []
    first, second = (request.json for request in upstream.requests)
    form = {"type": "grammar", **GRAMMAR}
    assert first["tools"][1:] == [
        {"type": "custom", "name": "patch", "description": "P.", "format": form},
        {"type": "custom", "name": "shell"},
    ]
    assert first["tool_choice"] == {"type": "custom", "name": "patch"}
    assert [tool["type"] for tool in second["tool_choice"]["tools"]] == ["function", "custom"]
    items = [item for item in first["input"] if "type" in item]
    assert items[0] == {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": INPUT}
    kinds = ["custom_tool_call", "function_call", "custom_tool_call"]
    assert [item["type"] for item in items] == kinds + [f"{kind}_output" for kind in kinds]


CHAT_CALLS: Final = [
    {"index": 0, "id": "call_a", "type": "custom", "custom": {"name": "patch", "input": ""}},
    *({"index": 0, "custom": {"input": piece}} for piece in (INPUT[:3], INPUT[3:])),
    {"index": 1, "id": "call_b", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    {"index": 2, "id": "call_c", "type": "custom", "custom": {"name": "shell", "input": ""}},
]
WHOLE_CHAT_CALLS: Final = [
    {"id": "call_a", "type": "custom", "custom": {"name": "patch", "input": INPUT}},
    {"id": "call_b", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    {"id": "call_c", "type": "custom", "custom": {"name": "shell", "input": ""}},
]
CALLED: Final = [("patch", {"input": INPUT}), ("weather", {}), ("shell", {"input": ""})]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_chat_completion_that_calls_them_is_read(
    stream: bool, upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    upstream.default_chat_reply = Reply(
        contents=[], tool_calls=CHAT_CALLS, message_tool_calls=WHOLE_CHAT_CALLS, finish_reason="tool_calls"
    )
    pieces = await pieces_of(provider, calling(CHAT_MODEL, stream=stream))
    assert (calls_of(pieces), finish_of(pieces)) == (CALLED, "tool_calls")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("ends_only", [False, True])
async def test_response_that_calls_them_is_read(
    ends_only: bool, stream: bool, upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    items = [
        custom_call_item("call_a", "patch", INPUT),
        call_item("call_b", "weather", "{}"),
        custom_call_item("call_c", "shell", ""),
    ]
    upstream.replies.append(ResponsesReply(said_items=items, ends_only=ends_only))
    pieces = await pieces_of(provider, calling(RESPONSES_MODEL, stream=stream))
    assert (calls_of(pieces), finish_of(pieces)) == (CALLED, "stop")


async def test_call_that_a_limit_cuts_has_what_came(upstream: OpenAIApis, provider: ResponsesProvider) -> None:
    upstream.default_chat_reply = Reply(contents=[], tool_calls=CHAT_CALLS[:2], finish_reason="length")
    pieces = await pieces_of(provider, calling(CHAT_MODEL))
    assert (calls_of(pieces), finish_of(pieces)) == ([("patch", {"input": INPUT[:3]})], "length")


@pytest.mark.parametrize("model_name", ["gpt-4o", "gpt-3"])
async def test_models_that_are_not_known_to_have_them_get_functions(
    model_name: str, upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    await pieces_of(provider, calling(model_name))
    assert [tool["type"] for tool in upstream.requests[-1].json["tools"]] == ["function"] * 3
    assert MARK not in str(upstream.requests[-1].json)


async def test_other_servers_get_functions_for_a_model_of_that_name(upstream: OpenAIApis) -> None:
    provider = opened(OpenAIProvider, upstream.base_url)
    await pieces_of(provider, calling(CHAT_MODEL))
    request = upstream.requests[-1].json
    assert [tool["type"] for tool in request["tools"]] == ["function"] * 3
    assert request["messages"][1:] == MESSAGES[1:]
    await provider.aclose()


async def test_model_that_refuses_them_gets_functions_in_the_same_call(
    upstream: OpenAIApis, provider: ResponsesProvider
) -> None:
    """duolahypercho/codex-router#78."""
    upstream.refuses_custom.add(RESPONSES_MODEL)
    for requests in (2, 3):
        await pieces_of(provider, calling(RESPONSES_MODEL))
        assert len(upstream.requests) == requests
    assert {tool["type"] for tool in upstream.requests[-1].json["tools"]} == {"function"}
