"""The items of an input become the messages of a chat, in which calls belong to what the assistant said."""

import json
from typing import Any

import pytest

from edge.wire.chat_request import MOST_ELEMENTS
from tests.edge.responses.conversions import AGENTS, PATCH, messages, refusal

USER = {"role": "user", "content": "Hi"}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id: str, name: str = "forecast", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def output(call_id: str, text: Any = "rain", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": text}


def called(call_id: str, name: str = "forecast", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: Any = "rain") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_messages_of_all_roles_keep_their_texts() -> None:
    parts = [{"type": "input_text", "text": "How is "}, {"type": "input_text", "text": "Paris – 雨 🌧?"}]  # noqa: RUF001
    assert messages(
        {"type": "message", "id": "msg_1", "role": "developer", "content": parts[:1]},
        {"role": "system", "content": "In French."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "Fine.", "phase": "final_answer"},
        said("Really."),
    ) == [
        {"role": "developer", "content": "How is "},
        {"role": "system", "content": "In French."},
        {"role": "user", "content": [{"type": "text", "text": part["text"]} for part in parts]},
        {"role": "assistant", "content": "Fine."},
        {"role": "assistant", "content": "Really."},
    ]


def test_what_the_assistant_said_and_called_before_the_results_is_one_message() -> None:
    assert messages(
        USER,
        said("Let me see."),
        call("call_1"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        call("call_2"),
        said("And more."),
        output("call_1"),
        output("call_2", [{"type": "input_text", "text": "sun"}]),
        call("call_3"),
        output("call_3", []),
    ) == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Let me see."}, {"type": "text", "text": "And more."}],
            "tool_calls": [called("call_1"), called("call_2")],
        },
        result("call_1"),
        result("call_2", "sun"),
        {"role": "assistant", "tool_calls": [called("call_3")]},
        result("call_3", ""),
    ]


def test_calls_of_custom_tools_and_of_namespaces_are_calls_of_their_functions() -> None:
    patch = '*** Begin Patch\n+ "é"\n'
    assert messages(
        USER,
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "apply_patch", "input": patch},
        call("call_2", "spawn", namespace="agents"),
        output("call_1", "done", "custom_tool_call_output"),
        output("call_2"),
        tools=[PATCH, AGENTS],
    )[1:] == [
        {
            "role": "assistant",
            "tool_calls": [
                called(
                    "call_1", "apply_patch", json.dumps({"input": patch}, ensure_ascii=False, separators=(",", ":"))
                ),
                called("call_2", "agents__spawn"),
            ],
        },
        result("call_1", "done"),
        result("call_2"),
    ]


def test_refusals_go_back_as_refusals() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}
    assert messages(USER, item)[1:] == [{"role": "assistant", "refusal": "I will not."}]


def thought(sealed: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}


def test_thoughts_that_were_sealed_here_are_in_the_message_of_their_turn() -> None:
    items = [USER, thought("1_a"), said("Sun."), thought("1_b"), call("call_1"), output("call_1"), thought("1_c")]
    user, turn, _ = messages(*items)
    details = [{"type": "reasoning.encrypted", "format": "legato-v1", "index": 0, "data": "1_a.1_b"}]
    assert turn == {
        "role": "assistant",
        "content": "Sun.",
        "tool_calls": [called("call_1")],
        "reasoning_details": details,
    }
    assert messages(USER, said("One."), USER, thought("1_a"), said("Two."))[1:] == [
        {"role": "assistant", "content": "One."},
        user,
        {"role": "assistant", "content": "Two.", "reasoning_details": [{**details[0], "data": "1_a"}]},
    ]


def test_reasoning_and_searches_made_elsewhere_are_dropped_without_an_error() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    assert messages(reasoning, USER, search, said("Sun."), reasoning) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Sun."},
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "input[1]"),
        ({"id": "msg_1"}, "input[1]"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[1].type"),
        ({"type": "mcp_call", "name": "x"}, "input[1].type"),
        ({"role": "tool", "content": "x"}, "input[1].role"),
        ({"role": "user"}, "input[1].content"),
        ({"role": "user", "content": None}, "input[1].content"),
        ({"role": "user", "content": []}, "input[1].content"),
        ({"role": "user", "content": 7}, "input[1].content"),
        ({"role": "user", "content": [{"type": "input_text", "text": 7}]}, "input[1].content[0].text"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}, "input[1].content"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[1].content"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[1].name"),
        ({"type": "function_call", "call_id": "", "name": "f", "arguments": "{}"}, "input[1].call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "input[1].arguments"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, "input[1].input"),
        ({"type": "function_call_output", "call_id": "c"}, "input[1].output"),
        (output("c", [{"type": "input_image", "image_url": "data:"}]), "input[1].output"),
        ("text", "input[1]"),
        (None, "input[1]"),
    ],
)
def test_an_item_that_cannot_be_taken_is_named(item: Any, param: str) -> None:
    assert refusal(input=[USER, item]).param == param


def test_an_input_without_a_message_is_refused() -> None:
    assert refusal(input=[{"type": "reasoning", "summary": []}]).param == "input"


def test_very_many_items_are_refused() -> None:
    parts = [{"type": "input_text", "text": ""}] * MOST_ELEMENTS
    assert refusal(input=[{"role": "user", "content": parts}]).param == "input[0].content"
