"""The table of fields in docs/api.md, each row of it against the running service."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chats import QUESTION, WEATHER
from tests.e2e.raw_http import Answer, post_chat
from tests.support.forwarded_parameters import FORWARDED
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([a-z ]+) \| (.*) \|$", re.MULTILINE)

# A value of each field that its row speaks of.
VALUES: dict[str, Any] = {
    "messages": QUESTION,
    "model": "mezzo",
    "stream": True,
    "max_tokens": 50,
    "max_completion_tokens": 50,
    "tools": [WEATHER],
    "tool_choice": "required",
    "parallel_tool_calls": True,
    **FORWARDED,
    "response_format": {"type": "json_object"},
    "reasoning": {"effort": "low"},
    "include_reasoning": True,
    "chat_template_kwargs": {"enable_thinking": False},
    "moderation": {"policy": {"input": {"mode": "score"}}},
    "logit_bias": {"50256": -100},
    "stream_options": {"include_usage": True},
    "user": "ann",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "priority",
    "prompt_cache_key": "ann",
    "prompt_cache_retention": "24h",
    "safety_identifier": "ann",
    "prediction": {"type": "content", "content": "It rains."},
    "web_search_options": {},
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
}
# Those that say something only together with others.
TOGETHER = {"tool_choice": ["tools"], "parallel_tool_calls": ["tools"]}


def read_table() -> dict[str, tuple[str, str]]:
    """Returns the effect and the description of each field."""
    chat = PAGE.read_text().partition("## A chat\n")[2].partition("\n## ")[0]
    return {
        name: (effect, description)
        for names, effect, description in _ROW.findall(chat)
        for name in re.findall(r"`(\w+)`", names)
    }


TABLE = read_table()


def test_table_has_a_value_for_each_field_here() -> None:
    assert TABLE.keys() == VALUES.keys()
    assert {effect for effect, _ in TABLE.values()} == {"used", "forwarded", "refused", "ignored", "not used"}


def ask_with(service: Service, api_key: str, name: str, *, stream: bool) -> Answer:
    together = {other: VALUES[other] for other in TOGETHER.get(name, ())}
    return post_chat(service, api_key, {"messages": QUESTION, "stream": stream, **together, name: VALUES[name]})


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_every_field_has_the_effect_that_the_table_says(
    stream: bool, service: Service, upstream: Upstream, api_key: str
) -> None:
    for name, (effect, description) in TABLE.items():
        upstream.requests.clear()
        answer = ask_with(service, api_key, name, stream=stream)
        if effect == "refused":
            assert (answer.status, answer.error["param"].partition("[")[0]) == (400, name), name
            # It says what to use instead.
            assert all(other in answer.error["message"] for other in re.findall("^Use `(\\w+)`", description)), name
            assert not upstream.requests, name
            continue
        assert answer.status == 200, (name, answer.body)
        assert answer.headers.get("x-legato-ignored") == (name if effect == "ignored" else None), name
        [request] = upstream.requests
        if effect == "forwarded":
            assert request.json[name] == VALUES[name], name
        elif effect != "used" and name != "stream_options":
            assert request.json.get(name) != VALUES[name], name


def test_all_of_them_together_change_nothing_about_that(service: Service, upstream: Upstream, api_key: str) -> None:
    sent = {name: value for name, value in VALUES.items() if TABLE[name][0] != "refused"}
    answer = post_chat(service, api_key, {**sent, "top_n": 5})
    assert answer.headers["x-legato-ignored"] == "top_n, prediction, web_search_options, service_tier, moderation"
    [request] = upstream.requests
    assert {name for name, (effect, _) in TABLE.items() if effect == "forwarded"} <= request.json.keys()
    # The field by which we ask that nothing be stored is ours.
    assert request.json["store"] is False
    assert not {"service_tier", "metadata", "user", "top_n"} & request.json.keys()


@pytest.mark.parametrize("value", [True, "auto", 7, [], {"a": 1}, None])
def test_store_and_service_tier_are_never_an_error(
    value: Any, service: Service, upstream: Upstream, api_key: str
) -> None:
    answer = post_chat(service, api_key, {"messages": QUESTION, "store": value, "service_tier": value})
    named = None if value in ("auto", None) else "service_tier"
    assert (answer.status, answer.headers.get("x-legato-ignored")) == (200, named)
    assert "service_tier" not in upstream.requests[-1].json


def test_pages_of_other_origins_may_read_what_was_ignored(service: Service, api_key: str) -> None:
    answer = post_chat(service, api_key, {"messages": QUESTION, "top_n": 5}, {"origin": "https://app.example"})
    assert "x-legato-ignored" in answer.headers["access-control-expose-headers"]
    assert answer.headers["x-legato-ignored"] == "top_n"
