"""Schemas too large for the bundled model."""

from contextlib import aclosing
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.router.providers.base import CannotDo, ProviderCall, ProviderError, Timeouts
from services.router.providers.local.grammar_bounds import TooMuch, check_schema
from services.router.providers.local.provider import LocalProvider
from tests.services.router.providers.asking import make_call, opened

LONG_ENUM = {"enum": [f"value number {number}" for number in range(6_000)]}


def nested(depth: int) -> dict[str, Any]:
    return reduce(lambda inner, _: {"type": "array", "items": inner}, range(depth), {"type": "string"})


def doubled(times: int) -> dict[str, Any]:
    """Names the same thing twice, again and again."""
    defs: dict[str, Any] = {
        f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]}
        for number in range(times)
    }
    return {"$defs": {**defs, f"d{times}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (LONG_ENUM, "elements"),
        ({"enum": list(range(600))}, "alternatives at one place"),
        ({"type": "object", "properties": {"colour": {"enum": list(range(600))}}}, "alternatives at one place"),
        ({"anyOf": [{"const": number} for number in range(600)]}, "alternatives at one place"),
        ({"anyOf": [{"enum": list(range(200))}, {"enum": list(range(200))}]}, "alternatives at one place"),
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(600)}}, "alternatives"),
        (doubled(12), "alternatives at one place"),
        (nested(70), "nested"),
        (nested(5_000), "nested"),
        ({"type": "string", "minLength": 100_000}, "minLength"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 3_000}, "maxItems"),
        ({"type": "string", "pattern": "^((a{0,30}){0,30}){0,30}$"}, "multiply"),
        ({"type": "string", "pattern": "^([a-z]{0,40}){0,40}$"}, "multiply"),
        ({"type": "string", "pattern": "^(x(y[a-z]{0,40}z)w){0,40}$"}, "multiply"),
        ({"type": "string", "pattern": "x{0,3000}"}, "multiply"),
        ({"type": "string", "pattern": "^" + "[a-z ]?" * 100 + "$"}, "repetitions"),
        ({"type": "string", "pattern": "a" * 2_000}, "characters"),
        ({"description": "x" * 300_000}, "bytes"),
    ],
)
def test_schema_that_would_keep_everybody_waiting_is_too_much(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(TooMuch, match=why):
        check_schema(to_json(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [f"country {number}" for number in range(250)]},
        # Only one of them is looked at at a time.
        {"type": "object", "properties": {f"p{n}": {"enum": list(range(200))} for n in range(20)}},
        {"$defs": {"tree": {"properties": {"children": {"items": {"$ref": "#/$defs/tree"}}}}}, "$ref": "#/$defs/tree"},
        doubled(7),
        nested(40),
        {"type": "string", "maxLength": 2_000},
        {"type": "string", "pattern": r"^(\d{3}-)?\d{3}-\d{4}$"},
        {"type": "string", "pattern": r"^[\w.+*?{}-]+@[a-z0-9.-]+\.[a-z]{2,24}$"},
        {"type": "string", "pattern": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"},
        {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        {"type": "string", "pattern": "^(?:a|b)?x{0,1000}$"},
        {"type": "string", "pattern": "))((("},
        {"$ref": "#/nowhere/at/all"},
        {"type": ["string", "null"], "enum": None, "properties": [], "pattern": 5, "items": True},
        [],
        "no schema",
    ],
)
def test_usual_schema_is_not_too_much(schema: Any) -> None:
    check_schema(to_json(schema))


def to_json(schema: Any) -> bytes:
    if isinstance(schema, dict) and schema.get("type") == "array":
        # The encoder has bounds of its own for what is nested very deep.
        depth, inner = 0, schema
        while isinstance(inner.get("items"), dict) and set(inner) == {"type", "items"}:
            depth, inner = depth + 1, inner["items"]
        return b'{"type":"array","items":' * depth + msgspec.json.encode(inner) + b"}" * depth
    return msgspec.json.encode(schema)


def call(parameters: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> ProviderCall:
    return make_call(
        model_name="small",
        messages_json=b'[{"role":"user","content":"Hello."}]',
        tools_json=msgspec.json.encode(tools) if tools else b"",
        tool_choice_json=b"",
        parameters_json=msgspec.json.encode(parameters),
        max_tokens=8,
        stream=True,
    )


async def ask_without_a_server(made: ProviderCall) -> None:
    """No server listens there: what is sent fails."""
    provider = opened(LocalProvider, timeouts=Timeouts(), socket=Path("/nowhere/model.sock"))
    async with aclosing(provider.answer(made)) as pieces:
        async for _ in pieces:
            pass


@pytest.mark.parametrize("place", ["json_schema", "schema"])
async def test_request_with_such_a_schema_is_refused_before_the_model_is_asked(place: str) -> None:
    wanted = {"schema": LONG_ENUM} if place == "schema" else {"json_schema": {"name": "a", "schema": LONG_ENUM}}
    with pytest.raises(CannotDo, match="schema of response_format") as refusal:
        await ask_without_a_server(call({"response_format": {"type": "json_schema", **wanted}}))
    assert refusal.value.param == "response_format"
    assert "value number" not in refusal.value.what


async def test_too_many_functions_are_refused() -> None:
    tools = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(600)]
    with pytest.raises(CannotDo, match="300 functions") as refusal:
        await ask_without_a_server(call({}, tools))
    assert refusal.value.param == "tools"


async def test_function_with_such_a_schema_has_its_arguments_left_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes] = []

    async def answer(self: object, made: ProviderCall) -> Any:
        sent.append(made.parameters.json)
        if sent:
            raise ProviderError("not there")
        yield

    monkeypatch.setattr("services.router.providers.openai.provider.OpenAIProvider.answer", answer)
    function = {"name": "paint", "parameters": {"type": "object", "properties": {"colour": LONG_ENUM}}}
    with pytest.raises(ProviderError, match="not there"):
        await ask_without_a_server(call({}, [{"type": "function", "function": function}]))
    [parameters] = sent
    assert b"value number" not in parameters
    assert b'"paint"' in parameters
