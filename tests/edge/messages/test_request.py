"""A request to `/v1/messages` becomes the chat that the same words would be as chat completions."""

import json
from typing import Any

import pytest

from edge.messages.request import RenderedChat, render_chat
from edge.wire.chat_request import decode_chat
from services.chassis.errors import LegatoError, Reason

QUESTION = [{"role": "user", "content": "Will it rain?"}]
TOOL = {"name": "forecast", "description": "The weather.", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"name": "forecast", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}


async def render(**fields: Any) -> RenderedChat:
    given = {"model": "mezzo", "max_tokens": 100, "messages": QUESTION, **fields}
    rendered = await render_chat(json.dumps(given).encode())
    # Whatever is rendered, validation accepts.
    await decode_chat(rendered.body)
    return rendered


async def rendered(**fields: Any) -> Any:
    return json.loads((await render(**fields)).body)


async def refusal(**fields: Any) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        await render(**fields)
    assert refused.value.reason is Reason.REQUEST_INVALID
    return refused.value


async def test_fields_of_the_same_name_are_the_same() -> None:
    chat = await rendered(stream=True, temperature=0.5, top_p=0.9, top_k=5)
    assert chat == {
        "model": "mezzo", "max_tokens": 100, "messages": QUESTION, "stream": True, "temperature": 0.5, "top_p": 0.9,
        "top_k": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "effort"),
    [
        ({"output_config": {"effort": "xhigh"}}, "xhigh"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
    ],
)
async def test_thinking_is_an_effort(given: dict[str, Any], effort: str | None) -> None:
    assert (await rendered(**given)).get("reasoning_effort") == effort


async def test_a_budget_of_thoughts_is_one_of_reasoning() -> None:
    chat = await rendered(thinking={"type": "enabled", "budget_tokens": 1024})
    assert chat["reasoning"] == {"max_tokens": 1024}
    assert "reasoning_effort" not in chat


@pytest.mark.parametrize(
    ("kind", "is_told"), [("adaptive", True), ("enabled", True), ("between_tools", False), ("disabled", False)]
)
async def test_a_request_that_has_the_model_think_is_told_what_it_thinks(kind: str, is_told: bool) -> None:
    assert (await rendered(thinking={"type": kind})).get("include_reasoning", False) is is_told


async def test_thoughts_may_be_asked_for_without_their_texts() -> None:
    for display, omits in ((None, False), ("summarized", False), ("omitted", True)):
        chat = await render(thinking={"type": "adaptive", "display": display})
        assert chat.form.omits_thinking is omits


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "forecast"}, {"tool_choice": {"type": "function", "function": {"name": "forecast"}}}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
    ],
)
async def test_choices_of_tools(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    chat = await rendered(tools=[TOOL], tool_choice=choice)
    assert {name: chat[name] for name in expected} == expected


async def test_tools_are_functions_and_keep_their_marks_and_the_order_of_their_schema() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    schema = {"type": "object", "properties": {"z": {}, "a": {}}}
    tools = [TOOL | {"strict": True, "type": "custom"}, TOOL | {"input_schema": schema, "cache_control": mark}]
    chat = await rendered(tools=tools)
    assert chat["tools"] == [
        {"type": "function", "function": FUNCTION | {"strict": True}},
        {"type": "function", "function": FUNCTION | {"parameters": schema}, "cache_control": mark},
    ]
    assert [*chat["tools"][1]["function"]["parameters"]["properties"]] == ["z", "a"]


@pytest.mark.parametrize("place", ["output_config", "output_format"])
async def test_schema_of_the_answer(place: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    chat = await rendered(**{place: {"format": form} if place == "output_config" else form})
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    assert chat["response_format"] == {"type": "json_schema", "json_schema": schema}


async def test_stop_sequences() -> None:
    assert (await rendered(stop_sequences=["END"]))["stop"] == ["END"]
    assert "stop" not in await rendered(stop_sequences=[])


async def test_what_changes_an_answer_and_is_not_passed_on_is_named() -> None:
    tool = TOOL | {"input_examples": [{}], "defer_loading": False}
    assert sorted((await render(speed="fast", tools=[tool])).ignored) == ["input_examples", "speed"]


async def test_what_changes_no_answer_is_accepted_and_not_named() -> None:
    given = {"metadata": {"user_id": "u"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}}
    chat = await render(**given, container=None, mcp_servers=[], system=None, tools=None, output_config=None)
    assert (json.loads(chat.body), [*chat.ignored]) == (await rendered(), [])


@pytest.mark.parametrize("name", ["compaction", "container", "inference_geo", "mcp_servers", "thread"])
async def test_what_an_answer_would_be_another_without_is_refused(name: str) -> None:
    error = await refusal(**{name: [{"type": "url"}] if name == "mcp_servers" else "us"})
    assert error.param == name


def thinking(*texts: str) -> dict[str, Any]:
    blocks = [{"type": "thinking", "thinking": text, "signature": "1_x"} for text in texts]
    return {"role": "assistant", "content": [*blocks, {"type": "tool_use", "id": "a", "name": "f", "input": {}}]}


RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}
TURNS = [*QUESTION, thinking("a" * 40), RESULT, thinking("b" * 40), *QUESTION, thinking("c" * 400), RESULT]


@pytest.mark.parametrize(
    ("keep", "kept_turns", "cleared"),
    [
        ({}, 1, (1, 21)),
        ({"keep": {"type": "thinking_turns", "value": 1}}, 1, (1, 21)),
        ({"keep": {"type": "thinking_turns", "value": 2}}, 2, None),
        ({"keep": {"type": "all"}}, None, None),
        ({"keep": "all"}, None, None),
    ],
)
async def test_thoughts_of_older_turns_are_cleared(
    keep: dict[str, Any], kept_turns: int | None, cleared: tuple[int, int] | None
) -> None:
    """Calls and their results belong to one turn."""
    edit = {"type": "clear_thinking_20251015"}
    chat = await render(messages=TURNS, context_management={"edits": [edit | keep]})
    assert chat.kept_turns == kept_turns
    names = ("cleared_thinking_turns", "cleared_input_tokens")
    assert chat.form.applied_edits == ([edit | dict(zip(names, cleared, strict=True))] if cleared else [])
    assert [*chat.ignored] == []


async def test_nothing_is_told_of_edits_that_are_not_asked_for() -> None:
    assert ((chat := await render(messages=TURNS)).form.applied_edits, chat.kept_turns) == (None, None)
    givens: list[dict[str, Any]] = [{}, {"edits": []}]
    for management in givens:
        assert ((chat := await render(context_management=management)).form.applied_edits, chat.kept_turns) == ([], None)


async def test_another_change_of_the_context_is_refused() -> None:
    for second in ("clear_tool_uses_20250919", "compact_20260112", "clear_thinking_20251015"):
        edits = [{"type": "clear_thinking_20251015"}, {"type": second}]
        assert (await refusal(context_management={"edits": edits})).param == "context_management.edits[1]"


@pytest.mark.parametrize("keep", [0, "some", {"type": "thinking_turns"}, {"type": "thinking_turns", "value": 0}])
async def test_what_is_to_be_kept_has_to_be_clear(keep: Any) -> None:
    await refusal(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": keep}]})


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1].type"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"system": 7}, "system"),
    ],
)
async def test_a_refusal_names_the_place_in_what_was_sent(given: dict[str, Any], param: str) -> None:
    assert (await refusal(**given)).param == param


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages":', b"{" * 2000, b'{"messages":[{"role":"user"}]}'])
async def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(LegatoError) as refused:
        await render_chat(body)
    assert refused.value.reason is Reason.REQUEST_INVALID


async def test_invalid_utf8_is_refused_and_not_quoted() -> None:
    call = b'{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"a":"canary\xff"}}]}'
    with pytest.raises(LegatoError) as refused:
        await render_chat(b'{"messages":[%b]}' % call)
    assert "canary" not in refused.value.message
