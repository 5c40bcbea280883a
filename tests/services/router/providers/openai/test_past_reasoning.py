"""Past reasoning in the fields of servers with OpenAI's wire."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.openai.past_reasoning import fill_reasoning, fill_signatures, write_thoughts
from services.router.providers.translation.google_signatures import NO_SIGNATURE
from services.router.schema.messages import Messages
from services.router.schema.thoughts import OF_MESSAGE, CallSignature, Carried, ReasoningDetail, ReasoningText, Thought
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed

CALLED = called(("a", "f", "{}"), ("b", "f", "{}"))
PAST = [USER, CALLED, gave("a", "x"), gave("b", "y")]
SIGNED = {"google": {"thought_signature": "s"}}


def messages(*given: Any, said: Sequence[Thought] = (), place: int = 0) -> Messages:
    """The messages, of which the second has these thoughts."""
    thoughts = {1: {place: Carried("f", "", said)}} if said else {}
    return replace(parsed(msgspec.json.encode(given)), thoughts=thoughts)


def answer_of(written: Messages) -> Any:
    return json.loads(written.json)[1]


@pytest.mark.parametrize(
    ("field", "came_in", "sent_in"),
    [
        (None, "reasoning", "reasoning"),
        (None, "reasoning_content", "reasoning_content"),
        ("reasoning_content", "reasoning", "reasoning_content"),
    ],
)
def test_text_is_in_the_field_of_the_server(field: str | None, came_in: str, sent_in: str) -> None:
    written = write_thoughts(messages(*PAST, said=[ReasoningText("So.", came_in)]), field)
    assert answer_of(written) == {**CALLED, sent_in: "So."}


def test_details_stand_alone_and_as_they_were() -> None:
    details = [{"type": "reasoning.text", "text": "So."}, {"type": "reasoning.encrypted", "data": "d"}]
    said: list[Thought] = [ReasoningDetail(json.dumps(each)) for each in details]
    written = write_thoughts(messages(*PAST, said=[*said, ReasoningText("So.", "reasoning")]), None)
    assert answer_of(written) == {**CALLED, "reasoning_details": details}


def test_signature_is_with_its_call() -> None:
    written = answer_of(write_thoughts(messages(*PAST, said=[CallSignature("s")]), None))
    assert [call.get("extra_content") for call in written["tool_calls"]] == [SIGNED, None]


def test_signature_that_belongs_to_no_call_is_left_out() -> None:
    given = messages(*PAST, said=[CallSignature("s")], place=OF_MESSAGE)
    assert answer_of(write_thoughts(given, None)) == CALLED


def test_messages_without_thoughts_are_the_same() -> None:
    given = messages(*PAST)
    assert write_thoughts(given, None) is given


def test_every_answer_has_reasoning_where_one_has_calls() -> None:
    said = {"role": "assistant", "content": "Hello"}
    given = messages(USER, CALLED, gave("a", "x"), gave("b", "y"), said, {**said, "reasoning_content": "So."})
    written = json.loads(fill_reasoning(given).json)
    assert [each.get("reasoning_content") for each in written if each["role"] == "assistant"] == [" ", " ", "So."]
    plain = messages(USER, said)
    assert fill_reasoning(plain) is plain


def test_first_of_the_calls_is_signed() -> None:
    written = answer_of(fill_signatures(messages(*PAST)))
    placeholder = {"google": {"thought_signature": NO_SIGNATURE}}
    assert [call.get("extra_content") for call in written["tool_calls"]] == [placeholder, None]
    calls = [{**CALLED["tool_calls"][0], "extra_content": SIGNED}, CALLED["tool_calls"][1]]
    signed = messages(USER, {**CALLED, "tool_calls": calls})
    assert fill_signatures(signed) is signed
