"""Messages of every role, and what is wrong with them."""

from typing import Any

import pytest

from edge.wire.chat_request import MOST_ELEMENTS
from tests.edge.wire.chat_bodies import USER, decode, refusal_of

ROLES = ("system", "developer", "user", "assistant")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}], "name": "Ann"},
        {"role": "assistant", "content": "Yes."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    ],
)
def test_every_form_of_message_is_taken(message: dict[str, Any]) -> None:
    assert decode(messages=[USER, message]).messages_json


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hello", "messages"),
        ({}, "messages"),
        ([5], "messages[0]"),
        ([{"content": "Hello"}], "messages[0]"),
        ([{"role": "wizard", "content": "Hello"}], "messages[0].role"),
        ([{"role": "function", "content": "Hello"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0]"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        (
            [USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[1].content",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([{"role": "assistant"}], "messages[0].content"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
        ([{"role": "assistant", "tool_calls": [{"id": "call_1"}]}], "messages[0].tool_calls[0]"),
        ([{"role": "user", "content": "Hello", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "system", "content": "Hello", "tool_calls": "none"}], "messages[0].tool_calls"),
        ([{"role": "tool", "content": "21", "tool_call_id": "a", "tool_calls": [{}]}], "messages[0].tool_calls"),
        *(([{"role": role, "content": "x", "name": 5}], "messages[0].name") for role in ROLES),
        ([{"role": "tool", "content": "21"}], "messages[0]"),
        ([{"role": "tool", "content": "21", "tool_call_id": ""}], "messages[0].tool_call_id"),
    ],
)
def test_wrong_messages_are_refused_with_their_place(messages: Any, param: str) -> None:
    assert refusal_of(messages=messages).param == param


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hello", "name": None, "tool_calls": None, "tool_call_id": None},
        {"role": "user", "content": "Hello", "tool_calls": []},
        {"role": "assistant", "content": "Hello", "tool_calls": None, "tool_call_id": None, "refusal": None},
        {"role": "tool", "content": "21", "tool_call_id": "call_1", "tool_calls": None},
    ],
)
def test_null_is_the_same_as_absent_in_a_message_too(message: dict[str, Any]) -> None:
    assert decode(messages=[message]).messages_json


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ([USER] * 5_000 + [{"role": "user", "content": 5}], "messages[5000].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x" * 200_000}, 5]}], "messages[0].content[1]"),
    ],
)
def test_mistake_in_a_big_body_is_found_at_its_place(wrong: Any, param: str) -> None:
    assert refusal_of(messages=wrong).param == param


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([USER] * (MOST_ELEMENTS + 1), "messages"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * MOST_ELEMENTS}], "messages[0].content"),
        ([{"role": "assistant", "content": "x", "tool_calls": [CALL] * MOST_ELEMENTS}], "messages[0].tool_calls"),
    ],
    ids=["messages", "parts", "calls"],
)
def test_more_messages_parts_and_calls_than_the_most_are_refused(messages: list[dict[str, Any]], param: str) -> None:
    refused = refusal_of(messages=messages)
    assert refused.message == "A request may have at most 100,000 messages, parts and tool calls together."
    assert refused.param == param


def test_most_messages_are_taken() -> None:
    assert decode(messages=[USER] * MOST_ELEMENTS).messages_json
