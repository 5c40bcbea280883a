"""Every field that we know, with a value of every type that it does not have."""

import json
from typing import Any, NamedTuple

import pytest

from edge.wire import chat_request as requests
from edge.wire.request_fields import Body
from services.chassis.errors import LegatoError, Reason
from tests.support.forwarded_parameters import FORWARDED

USER = {"role": "user", "content": "Hello"}
FUNCTION = {"name": "weather", "description": "Tells it", "parameters": {"type": "object"}, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
CHOICE = {"type": "function", "function": {"name": "weather"}}
SCHEMA = {"name": "x", "description": "An answer", "schema": {"type": "object"}, "strict": True}
FORMAT = {"type": "json_schema", "json_schema": SCHEMA}

# A body in which every field that we know has a value of its type.
BODY: dict[str, Any] = {
    "messages": [
        *({**USER, "role": role, "name": "Ann", "tool_calls": [], "tool_call_id": "call_0", "refusal": ""}
          for role in ("system", "developer", "user")),
        {"role": "assistant", "content": "x", "name": "x", "tool_calls": [CALL], "tool_call_id": "x", "refusal": "x"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "21"}], "name": "weather",
         "tool_calls": [], "refusal": ""},
    ],
    "model": "forte", "stream": True, **FORWARDED, "max_tokens": 5, "max_completion_tokens": 5,
    "response_format": FORMAT,
    "tools": [TOOL], "tool_choice": CHOICE, "parallel_tool_calls": True, "n": 1, "logprobs": False, "top_logprobs": 0,
    "stream_options": {"include_usage": True, "include_obfuscation": True},
    "user": "ann", "metadata": {"a": "b"}, "modalities": ["text"],
    "logit_bias": {"50256": -100}, "reasoning": {"effort": "low", "max_tokens": 5, "enabled": True, "exclude": True},
    "include_reasoning": True, "chat_template_kwargs": {},
    "moderation": {"policy": {"input": {"mode": "score"}, "output": {"mode": "score"}}},
}  # fmt: skip
# Those that are refused, whatever they hold, and those that are not.
NEVER_TAKEN = {"functions", "function_call", "audio"}
ALWAYS_TAKEN = {
    "store", "service_tier", "prediction", "web_search_options", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier",
}  # fmt: skip

# JSON has no others, but for null.
VALUES: dict[str, Any] = {"boolean": True, "number": 0.25, "string": "?!", "array": [[]], "object": {"?": {}}}
# Those of a field whose own value does not tell all of them.
TYPES: dict[str, set[str]] = {
    "stop": {"string", "array"},
    "tool_choice": {"string", "object"},
    "content": {"string", "array"},
}


class Place(NamedTuple):
    """The way from the body to a value in it."""

    path: tuple[str | int, ...]

    @property
    def name(self) -> str:
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")

    def put(self, value: Any) -> bytes:
        body = inner = json.loads(json.dumps(BODY))
        for step in self.path[:-1]:
            inner = inner[step]
        inner[self.path[-1]] = value
        return json.dumps(body).encode()


def kind_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[Place, Any]]:
    """Every value in the body, but for what is inside of a schema, which is the client's own affair."""
    found: list[tuple[Place, Any]] = [(Place(path), value)] if path else []
    steps = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for step, inner in steps:
        if path[-1:] not in (("parameters",), ("schema",)):
            found += places(inner, (*path, step))
    return found


PLACES = places(BODY)
WRONG = [
    (place, [kind for kind in VALUES if kind not in TYPES.get(str(place.path[-1]), {kind_of(value)})])
    for place, value in PLACES
]


async def refusal(body: bytes) -> LegatoError | None:
    try:
        await requests.decode_chat(body)
    except LegatoError as error:
        return error
    return None


async def test_the_body_that_all_others_differ_from_is_good() -> None:
    assert await refusal(json.dumps(BODY).encode()) is None


def test_every_field_is_in_it() -> None:
    assert set(Body.__struct_fields__) == set(BODY) | NEVER_TAKEN | ALWAYS_TAKEN


@pytest.mark.parametrize("kind", [*VALUES])
async def test_some_are_refused_and_some_taken_whatever_they_hold(kind: str) -> None:
    for name in NEVER_TAKEN:
        error = await refusal(Place((name,)).put(VALUES[kind]))
        assert error is not None, name
        assert error.param == name
    for name in ALWAYS_TAKEN:
        assert await refusal(Place((name,)).put(VALUES[kind])) is None, name


async def test_value_of_a_wrong_type_is_refused() -> None:
    assert WRONG
    for place, kinds in WRONG:
        for kind in kinds:
            case = place.name, kind
            error = await refusal(place.put(VALUES[kind]))
            assert error is not None, case
            assert error.reason is Reason.REQUEST_INVALID, case
            assert error.param is not None, case
            # Where it stands, or what it stands in.
            assert place.name.startswith(error.param) or error.param.startswith(place.name), case


async def test_null_is_no_wrong_type() -> None:
    for name in sorted({*BODY, *NEVER_TAKEN, *ALWAYS_TAKEN} - {"messages", "tools", "tool_choice"}):
        assert await refusal(Place((name,)).put(None)) is None, name


@pytest.mark.parametrize("path", [("stream_options", "include_usage"), ("metadata", "a")])
async def test_null_inside_of_a_field_is_no_wrong_type(path: tuple[str, ...]) -> None:
    assert await refusal(Place(path).put(None)) is None


@pytest.mark.parametrize("kind", [*VALUES])
async def test_unknown_fields_are_ignored_whatever_they_hold(kind: str) -> None:
    for path in (
        ("unknown",),
        ("stream_options", "unknown"),
        ("messages", 0, "unknown"),
        ("response_format", "unknown"),
    ):
        assert await refusal(Place(path).put(VALUES[kind])) is None


async def test_limit_that_does_not_count_is_checked_all_the_same() -> None:
    error = await refusal(json.dumps(BODY | {"max_tokens": 0.5, "max_completion_tokens": 5}).encode())
    assert error is not None
    assert error.param == "max_tokens"
