"""Refusals of JSON say what is accepted and never what was sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.wire.chat_bodies import refusal, refusal_of


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":Infinity}',
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1e999}',
        b'{"messages":[{"role":"user","content":"x"}],"unknown":tru}',
        b'{"messages":[{"role":"user","content":"x"}],"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[{"role":"user","content":"x"}],"unknown":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_what_is_no_proper_json_is_refused(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 2.5}, "temperature: Expected 'float' <= 2.0."),
        ({"presence_penalty": -3}, "presence_penalty: Expected 'float' >= -2.0."),
        ({"stop": ["1", "2", "3", "4", "5"]}, "stop: Expected 'array' of length <= 4."),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content: Expected 'array' of length >= 1."),
        (
            {"messages": [{"role": "tool", "content": "21", "tool_call_id": ""}]},
            "messages[0].tool_call_id: Expected 'str' of length >= 1.",
        ),
        ({"stream": "yes"}, "stream: Expected 'bool | null', got 'str'."),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type: This value is not one of those accepted here."),
    ],
)
def test_refusals_say_what_is_accepted(fields: dict[str, Any], message: str) -> None:
    assert refusal_of(**fields).message == message


@given(st.text(min_size=8))
def test_refusals_never_quote_what_was_sent(secret: str) -> None:
    secret = f"canary-{secret}"
    for message in ({"role": secret, "content": "x"}, {"role": "user", "content": {"x": secret}}):
        error = refusal_of(messages=[message], tool_choice=secret, model=secret)
        assert "canary" not in error.message + str(error.param)
