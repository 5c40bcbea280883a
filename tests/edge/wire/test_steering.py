"""How much a model is to think, and what no model is asked."""

from typing import Any

import msgspec
import pytest

from tests.edge.wire.chat_bodies import decode, refusal_of


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        ({"reasoning": {"effort": "high", "exclude": True}}, {"reasoning_effort": "high"}),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning": {"max_tokens": 2000}}, {"reasoning": {"max_tokens": 2000}}),
        ({"reasoning": {"enabled": False, "max_tokens": 2000}}, {}),
        ({"reasoning": {"enabled": False}}, {"reasoning_effort": "none"}),
        ({"reasoning": {"enabled": True}}, {"reasoning_effort": "medium"}),
        ({"reasoning": {}}, {}),
        ({"top_k": 5, "min_p": 0.5, "repetition_penalty": 1.1}, {"top_k": 5, "min_p": 0.5, "repetition_penalty": 1.1}),
    ],
)
def test_parameters_are_those_of_the_router(fields: dict[str, Any], parameters: dict[str, Any]) -> None:
    body = decode(**fields)
    assert msgspec.json.decode(body.parameters_json or b"{}") == parameters
    assert not body.ignored


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"service_tier": "flex"}, ("service_tier",)),
        ({"service_tier": "auto"}, ()),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, ("reasoning.summary",)),
        ({"moderation": {"policy": {"input": {"mode": "score"}}}}, ("moderation",)),
        ({"prompt_cache_options": {"mode": "explicit"}}, ("prompt_cache_options",)),
    ],
)
def test_what_has_no_effect_is_named(fields: dict[str, Any], ignored: tuple[str, ...]) -> None:
    assert decode(**fields).ignored == ignored


def test_mark_of_a_cache_that_is_not_used_is_named() -> None:
    part = {"type": "text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert decode(messages=[{"role": "user", "content": [part]}]).ignored == ("prompt_cache_breakpoint",)


@pytest.mark.parametrize("place", ["input", "output"])
def test_answer_that_is_to_be_blocked_is_not_given_without(place: str) -> None:
    error = refusal_of(moderation={"model": "omni", "policy": {place: {"mode": "block"}}})
    assert error.param == f"moderation.policy.{place}.mode"


def test_refusal_that_is_a_part_is_taken_as_it_came() -> None:
    said = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}
    assert not decode(messages=[{"role": "user", "content": "Hi"}, said]).ignored
    said["content"] = [{"type": "refusal"}]
    assert refusal_of(messages=[said]).param == "messages[0].content"
