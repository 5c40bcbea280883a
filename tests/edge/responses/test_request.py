"""A request for a response becomes a chat; what needs something stored is refused, and what is left out is named."""

from typing import Any

import pytest

from edge.responses.request import rename_param
from edge.responses.response_items import ReasoningForm
from edge.wire.value_limit import MOST_VALUES
from tests.edge.responses.conversions import FORECAST, convert, refusal

SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}}


def test_text_as_input_is_a_question_after_the_instructions() -> None:
    chat = convert(input="Will it rain?", instructions="Be brief.").chat
    assert chat == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Will it rain?"}]
    }


def test_every_parameter_has_its_place_in_the_chat() -> None:
    converted = convert(
        model="mezzo",
        stream=True,
        max_output_tokens=64,
        temperature=0.5,
        top_p=0.25,
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "high", "format": {"type": "json_schema", "name": "day", "schema": SCHEMA, "strict": True}},
        tools=[FORECAST],
        parallel_tool_calls=False,
        prompt_cache_key="ann",
        include=["reasoning.encrypted_content"],
    )
    assert {name: value for name, value in converted.chat.items() if name not in ("messages", "tools")} == {
        "model": "mezzo",
        "stream": True,
        "max_tokens": 64,
        "temperature": 0.5,
        "top_p": 0.25,
        "reasoning_effort": "low",
        "include_reasoning": True,
        "verbosity": "high",
        "response_format": {"type": "json_schema", "json_schema": {"name": "day", "schema": SCHEMA, "strict": True}},
        "parallel_tool_calls": False,
        "prompt_cache_key": "ann",
    }
    assert converted.ignored == ()
    assert converted.body.ignored == ()


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({}, ReasoningForm()),
        ({"reasoning": {"effort": "low"}}, ReasoningForm()),
        ({"reasoning": {"summary": "none"}}, ReasoningForm()),
        ({"reasoning": {"summary": "auto"}}, ReasoningForm(has_summary=True)),
        ({"include": ["reasoning.encrypted_content"]}, ReasoningForm(has_encrypted=True)),
    ],
)
def test_the_model_is_asked_what_it_thinks_only_for_a_request_that_wants_to_know(
    fields: dict[str, Any], form: ReasoningForm
) -> None:
    converted = convert(**fields)
    assert converted.reasoning == form
    assert converted.chat.get("include_reasoning", False) is any(form)


@pytest.mark.parametrize("kind", ["text", "json_object"])
def test_format_without_a_schema_is_passed_on(kind: str) -> None:
    assert convert(text={"format": {"type": kind}}).chat["response_format"] == {"type": kind}


def test_what_a_client_always_sends_and_no_answer_depends_on_is_not_named() -> None:
    sent: dict[str, Any] = {
        "store": False,
        "truncation": "disabled",
        "include": [],
        "metadata": {"a": "b"},
        "client_metadata": {"session": "1"},
        "user": "ann",
        "safety_identifier": "x",
        "service_tier": "flex",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "implicit"},
        "max_tool_calls": 3,
        "previous_response_id": None,
        "background": False,
        "context_management": [],
        "reasoning": {"mode": "standard", "context": "auto"},
    }
    converted = convert(**sent)
    assert converted.chat.keys() == {"messages"}
    assert converted.ignored == ()
    assert converted.settings["metadata"] == {"a": "b"}


def test_what_would_change_an_answer_and_is_left_out_is_named() -> None:
    fields: dict[str, Any] = {
        "truncation": "auto",
        "reasoning": {"mode": "pro", "context": "all_turns"},
        "seed": 7,
        "moderation": {},
    }
    converted = convert(**fields)
    assert converted.ignored == ("seed", "moderation", "truncation", "reasoning.context", "reasoning.mode")
    assert converted.chat.keys() == {"messages"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ],
)
def test_what_needs_something_stored_is_refused_with_what_to_do(fields: dict[str, Any], param: str) -> None:
    refused = refusal(**fields)
    assert refused.param == param
    assert "stored here" in refused.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": {}}, "input"),
        ({"instructions": ["a"]}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"truncation": "middle"}, "truncation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "day"}}}, "text.format.schema"),
        ({"text": {"verbosity": 1}}, "text.verbosity"),
        ({"reasoning": {"effort": "very high"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "Much, please"}}, "reasoning.summary"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "b" * 70_000}}, "metadata"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_mistake_is_named_by_its_place(fields: dict[str, Any], param: str) -> None:
    assert refusal(**fields).param == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"input":"\xff"}',
        b'{"input":"\\ud800"}',
        b'{"input":[' + b"[]," * (MOST_VALUES + 1) + b"[]]}",
        b'{"input":"x","unknown":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
    ids=range(7),
)
def test_what_is_no_proper_json_is_refused(body: bytes) -> None:
    refusal(body)


def test_an_answer_tells_the_settings_of_its_request() -> None:
    settings = convert(
        temperature=0.5,
        max_output_tokens=9,
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        prompt_cache_key="a",
        text={"format": {"type": "json_object"}, "verbosity": "low"},
    ).settings
    assert settings == {
        "frequency_penalty": 0,
        "max_output_tokens": 9,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": False,
        "presence_penalty": 0,
        "prompt_cache_key": "a",
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": None,
        "temperature": 0.5,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "tool_choice": "auto",
        "top_logprobs": 0,
        "top_p": 1,
    }


def test_settings_that_a_request_does_not_have_are_told_as_openai_does() -> None:
    settings = convert(prompt_cache_key=7).settings
    assert (settings["temperature"], settings["top_p"], settings["text"]) == (1, 1, {"format": {"type": "text"}})
    assert settings["prompt_cache_key"] is None


@pytest.mark.parametrize(
    ("param", "named"),
    [
        ("messages", "input"),
        ("messages[3].content", "input"),
        ("max_tokens", "max_output_tokens"),
        ("response_format.json_schema.schema", "text.format"),
        ("model", "model"),
        (None, None),
    ],
)
def test_fields_of_the_chat_are_told_by_their_names_in_the_request(param: str | None, named: str | None) -> None:
    assert rename_param(param) == named
