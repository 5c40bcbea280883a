"""Schemas in the words of a vendor."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from services.router.providers.translation.schemas import ANTHROPIC, GEMINI, SchemaWords, is_recursive


def fitted(words: SchemaWords, schema: Any) -> Any:
    return msgspec.json.decode(words.fit(Raw(msgspec.json.encode(schema))))


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (
            {"oneOf": [{"type": "string", "maxLength": 3}]},
            {"anyOf": [{"type": "string", "description": "(maxLength: 3)"}]},
        ),
        ({"type": "string", "format": "email"}, {"type": "string", "format": "email"}),
        ({"type": "string", "format": "phone"}, {"type": "string", "description": '(format: "phone")'}),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}),
        ({"type": "array", "uniqueItems": False}, {"type": "array"}),
        ({"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": False}),
        # A property may be called like a word of the language.
        (
            {"properties": {"minimum": {"type": "string"}}},
            {"properties": {"minimum": {"type": "string"}}, "additionalProperties": False},
        ),
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        (True, True),
    ],
)
def test_schema_in_anthropics_words(schema: Any, sent: Any) -> None:
    assert fitted(ANTHROPIC, schema) == sent


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"const": "a"}, {"enum": ["a"]}),
        (
            {"type": "integer", "minimum": 1, "multipleOf": 2},
            {"type": "integer", "minimum": 1, "description": "(multipleOf: 2)"},
        ),
        ({"$ref": "#/$defs/a", "description": "An a."}, {"$ref": "#/$defs/a"}),
    ],
)
def test_schema_in_geminis_words(schema: Any, sent: Any) -> None:
    assert fitted(GEMINI, schema) == sent


def test_schema_that_has_no_other_words_keeps_its_bytes() -> None:
    schema = Raw(b'{ "type":"object", "properties" : {"b":{}, "a":{}} }')
    assert GEMINI.fit(schema) is schema


def test_properties_keep_their_order() -> None:
    schema = Raw(b'{"type":"object","properties":{"z":{"minimum":1},"a":{}}}')
    assert bytes(ANTHROPIC.fit(schema)).index(b'"z"') < bytes(ANTHROPIC.fit(schema)).index(b'"a"')


def test_schema_that_is_too_deep_stays_as_it_is() -> None:
    deep = Raw(b'{"items":' * 900 + b"{}" + b"}" * 900)
    assert ANTHROPIC.fit(deep) is deep
    assert not is_recursive(deep)


@pytest.mark.parametrize(
    ("schema", "recursive"),
    [
        ({"properties": {"next": {"$ref": "#"}}}, True),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, True),
        ({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, False),
        ({"properties": {"$ref": {"type": "string"}}}, False),
        ({}, False),
    ],
)
def test_recursion_is_found(schema: Any, recursive: bool) -> None:
    assert is_recursive(Raw(msgspec.json.encode(schema))) is recursive
