"""JSON schemas in the words that a vendor takes.

A vendor compiles a schema into a grammar, and refuses the words that it has no grammar for. These stand in the
description instead, where the model reads them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

# Words that hold schemas: by name, in a list, and one.
_NAMED: Final = ("properties", "$defs", "definitions")
_LISTED: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties")
_REFERENCE: Final = "$ref"


@dataclass(frozen=True, slots=True)
class SchemaWords:
    """The part of JSON Schema that a vendor takes."""

    refused: frozenset[str]
    # Of `format`; None: all.
    formats: frozenset[str] | None = None
    # The highest `minItems`; None: any.
    most_min_items: int | None = None
    # Whether each object must declare that it has no other properties.
    closes_objects: bool = False
    # Whether `oneOf` is written as `anyOf`.
    has_one_of: bool = True
    # Whether `const` is taken, and not only an `enum` of one.
    has_const: bool = True
    # Whether `$ref` stands alone.
    bare_references: bool = False

    def fit(self, schema: Raw) -> Raw:
        """Returns a schema in these words; the same bytes if it has no other."""
        if not self.closes_objects and _words_of(bytes(schema)).isdisjoint(self._changed):
            return schema
        try:
            return Raw(msgspec.json.encode(self._fit(msgspec.json.decode(schema))))
        except RecursionError:
            return schema

    @property
    def _changed(self) -> frozenset[str]:
        return self.refused | {_REFERENCE, "const"} if self.bare_references else self.refused

    def _fit(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        if self.bare_references and _REFERENCE in schema:
            return {name: self._inner(name, value) for name, value in schema.items() if name.startswith("$")}
        fitted: dict[str, Any] = {}
        left_out = []
        for name, value in schema.items():
            if name == "const" and not self.has_const:
                fitted["enum"] = [value]
            elif self._takes(name, value):
                fitted["anyOf" if name == "oneOf" and not self.has_one_of else name] = self._inner(name, value)
            elif value is not False:
                left_out.append(f"{name}: {msgspec.json.encode(value).decode()}")
        if left_out:
            fitted["description"] = " ".join(filter(None, (fitted.get("description"), f"({'; '.join(left_out)})")))
        if self.closes_objects and (fitted.get("type") == "object" or "properties" in fitted):
            fitted["additionalProperties"] = False
        return fitted

    def _takes(self, name: str, value: object) -> bool:
        if name == "format" and self.formats is not None:
            return value in self.formats
        if name == "minItems" and self.most_min_items is not None:
            return isinstance(value, int) and value <= self.most_min_items
        if name == "additionalProperties" and self.closes_objects:
            return value is False
        return name not in self.refused

    def _inner(self, name: str, value: Any) -> Any:
        if name in _NAMED and isinstance(value, dict):
            return {key: self._fit(inner) for key, inner in value.items()}
        if name in _LISTED and isinstance(value, list):
            return [self._fit(inner) for inner in value]
        return self._fit(value) if name in _SINGLE else value


def is_recursive(schema: Raw) -> bool:
    """Returns whether a definition of the schema refers to itself, through others too."""
    if b'"$ref"' not in bytes(schema):
        return False
    try:
        decoded = msgspec.json.decode(schema)
        definitions = {
            f"#/{place}/{name}": frozenset(_references(inner))
            for place in ("$defs", "definitions")
            for name, inner in _object(decoded.get(place)).items()
        }
        definitions["#"] = frozenset(_references(decoded))
        return any(name in _reached(name, definitions) for name in definitions)
    except (RecursionError, AttributeError):
        return True


def _reached(name: str, definitions: Mapping[str, frozenset[str]]) -> set[str]:
    reached: set[str] = set()
    left = [*definitions.get(name, ())]
    while left:
        next_name = left.pop()
        if next_name not in reached:
            reached.add(next_name)
            left += definitions.get(next_name, ())
    return reached


def _references(schema: Any) -> Iterator[str]:
    """Yields the references of a schema, but not those within its definitions."""
    for name, value in _object(schema).items():
        if name == _REFERENCE and isinstance(value, str):
            yield value
        elif name == "properties":
            for inner in _object(value).values():
                yield from _references(inner)
        elif name not in _NAMED:
            for inner in value if isinstance(value, list) else [value]:
                yield from _references(inner)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_WORD: Final = re.compile(rb'"(\$?[a-zA-Z]+)"\s*:')


def _words_of(schema: bytes) -> set[str]:
    """Returns the names of all fields, of which some are words of the schema."""
    return {name.decode() for name in _WORD.findall(schema)}


_CONDITIONS: Final = frozenset({"if", "then", "else", "not", "dependentRequired", "dependentSchemas"})
_PATTERNS: Final = frozenset({"pattern", "patternProperties", "propertyNames"})
_LENGTHS: Final = frozenset({"minLength", "maxLength", "minProperties", "maxProperties"})
_COUNTS: Final = frozenset({"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedProperties"})
_STEPS: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum", "multipleOf"})

# As Anthropic's own SDK writes schemas, which shows what its API takes.
ANTHROPIC: Final = SchemaWords(
    _CONDITIONS | _PATTERNS | _LENGTHS | _COUNTS | _STEPS | {"minimum", "maximum", "maxItems", "prefixItems"},
    formats=frozenset(
        ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
    ),
    most_min_items=1,
    closes_objects=True,
    has_one_of=False,
)
# As ai.google.dev lists the words of `responseJsonSchema`.
GEMINI: Final = SchemaWords(
    _CONDITIONS | _PATTERNS | _LENGTHS | _COUNTS | _STEPS, has_const=False, bare_references=True
)
