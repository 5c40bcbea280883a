"""Messages of blocks become messages of chat completions, in the order in which models want them."""

import json
from typing import Any

import pytest

from edge.messages.request import render_chat
from edge.wire.chat_request import MOST_ELEMENTS, decode_chat
from services.chassis.errors import LegatoError, Reason

MARK = {"cache_control": {"type": "ephemeral"}}
CALL = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def result(content: Any = None, **fields: Any) -> dict[str, Any]:
    given = {} if content is None else {"content": content}
    return {"type": "tool_result", "tool_use_id": "call_1", **given, **fields}


async def render(*messages: Any, system: Any = None) -> Any:
    given = {"messages": messages} | ({} if system is None else {"system": system})
    rendered = await render_chat(json.dumps(given, separators=(",", ":")).encode())
    await decode_chat(rendered.body)
    return json.loads(rendered.body)["messages"]


async def said_by(role: str, *blocks: Any) -> Any:
    return await render({"role": role, "content": blocks})


async def refusal(*messages: Any, system: Any = None) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        await render(*messages, system=system)
    assert refused.value.reason is Reason.REQUEST_INVALID
    return refused.value


async def test_instructions_are_a_system_message_before_all_others() -> None:
    question = {"role": "user", "content": "Hi"}
    assert await render(question, system="Be brief.") == [{"role": "system", "content": "Be brief."}, question]
    blocks = [text("Be"), text("brief.", **MARK)]
    assert (await render(question, system=blocks))[0] == {"role": "system", "content": blocks}
    assert await render(question, system=[]) == [question]


async def test_instructions_in_the_middle_stay_there() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [text("Now in French.")]},
        {"role": "user", "content": "Go on"},
    ]
    assert [message["role"] for message in await render(*messages)] == ["user", "system", "user"]


async def test_text_is_a_string_unless_there_is_more_to_it() -> None:
    assert await said_by("user", text("Hi")) == [{"role": "user", "content": "Hi"}]
    assert await said_by("user", text("a"), text("b", **MARK)) == [
        {"role": "user", "content": [text("a"), text("b", **MARK)]}
    ]


async def test_thoughts_come_back_by_their_seals() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "Hm.", "signature": "1_a.2_b"},
        {"type": "redacted_thinking", "data": "1_c"},
        {"type": "thinking", "thinking": "Hm.", "signature": "none"},
        {"type": "thinking", "thinking": "Hm.", "signature": None},
    ]
    details = [{"type": "reasoning.encrypted", "format": "legato-v1", "index": 0, "data": "1_a.2_b.1_c"}]
    assert await said_by("assistant", *thoughts, text("So."), CALL) == [
        {"role": "assistant", "content": "So.", "tool_calls": [TOOL_CALL], "reasoning_details": details}
    ]


async def test_calls_follow_what_the_model_said_and_thoughts_of_elsewhere_are_left_out() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCkYIARgCKkBx=="}
    hidden = {"type": "redacted_thinking", "data": "x"}
    assert await said_by("assistant", thought, hidden, text("So."), CALL) == [
        {"role": "assistant", "content": "So.", "tool_calls": [TOOL_CALL]}
    ]
    assert await said_by("assistant", thought, CALL) == [
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    ]
    assert await said_by("assistant", thought) == [{"role": "assistant", "content": ""}]


async def test_results_are_messages_that_follow_the_calls_and_the_users_words_come_after_them() -> None:
    assert await said_by("user", text("And?"), result("Rain")) == [
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain"},
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result(), ""),
        (result([]), ""),
        (result([text("a"), text("b")]), [text("a"), text("b")]),
        (result("Rain", **MARK), [text("Rain", **MARK)]),
        (result("no such city", is_error=True), "Error: no such city"),
        (result([text("no such city")], is_error=True), "Error: no such city"),
        (result("Error: no such city", is_error=True), "Error: no such city"),
        (result(is_error=True), "Error: "),
        (result("Rain", is_error=False), "Rain"),
    ],
)
async def test_results_of_any_form(block: dict[str, Any], content: Any) -> None:
    [message] = await said_by("user", block)
    assert message["content"] == content


async def test_a_mark_that_has_no_place_is_named() -> None:
    body = {"messages": [{"role": "assistant", "content": [CALL | MARK]}]}
    assert [*(await render_chat(json.dumps(body).encode())).ignored] == ["tool_use.cache_control"]


@pytest.mark.parametrize(
    "kind", ["image", "document", "search_result", "server_tool_use", "tool_reference", "anything"]
)
async def test_what_no_model_takes_is_refused_wherever_it_is(kind: str) -> None:
    block = {"type": kind, "source": {"type": "base64", "data": "canary"}}
    error = await refusal({"role": "user", "content": [text("Look"), block]})
    assert error.param == "messages[0].content[1]"
    assert "canary" not in error.message
    error = await refusal({"role": "user", "content": [result([block])]})
    assert error.param == "messages[0].content[0].content[0]"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": 7}, "messages[0].content"),
        ({"role": "user"}, "messages[0]"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [text("x") | {"text": 7}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [CALL]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "tool_result", "content": "x"}]}, "messages[0].content[0].tool_use_id"),
        ({"role": "user", "content": [result(7)]}, "messages[0].content[0].content"),
        ({"role": "assistant", "content": [result("x")]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [CALL | {"id": ""}]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [CALL | {"input": "x"}]}, "messages[0].content[0].input"),
    ],
)
async def test_a_refusal_names_the_place_in_what_was_sent(message: Any, param: str) -> None:
    assert (await refusal(message)).param == param


async def test_more_blocks_than_any_chat_has_are_refused() -> None:
    half = {"role": "user", "content": [text("")] * (MOST_ELEMENTS // 2)}
    assert (await refusal(half, half)).param == "messages[1].content"
