"""Limits the JSON schemas that the bundled model is given.

Its server compiles a JSON schema into a grammar, and matches each token of its vocabulary against all alternatives at
the current position, in the one inference thread. The number of alternatives determines the CPU time: an `enum` of
6,000 values takes a minute and a half and cannot be cancelled. So a schema is measured before it is sent.
"""

import re
from typing import Any, Final

import msgspec

# Alternatives at any position: with 300, the first tokens take a second or two.
CHOICES_MOST: Final = 300
# Limits on the whole schema, values of enums included.
ELEMENTS_MOST: Final = 5_000
SCHEMA_BYTES_MOST: Final = 256 * 1024
DEPTH_MOST: Final = 64
# The server's own limit.
REPETITIONS_MOST: Final = 2_000
# Quantifiers in one `pattern`. Several that may match nothing multiply the ways to parse a text.
PATTERN_REPEATS_MOST: Final = 8
# Product of nested repetitions.
PATTERN_PRODUCT_MOST: Final = 200
PATTERN_BYTES_MOST: Final = 1_000

_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems")
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")
# Escaped characters and classes contain no quantifiers.
_PATTERN_ATOMS: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_PATTERN_REPEAT: Final = re.compile(r"(?<!\()(?:[*+?]|\{\d*(?:,\d*)?\})")
_PATTERN_PARTS: Final = re.compile(
    r"(?P<open>\((?:\?[:=!])?)|(?P<close>\))|(?P<repeat>[*+?]|\{(?P<least>\d*)(?:,(?P<most>\d*))?\})|.", re.DOTALL
)


class TooMuch(Exception):
    """Names the limit that the schema exceeds, without quoting the schema."""


def check_schema(schema_json: bytes) -> None:
    """Raises TooMuch if the schema would block the bundled model for other chats."""
    if len(schema_json) > SCHEMA_BYTES_MOST:
        raise TooMuch(f"it has more than {SCHEMA_BYTES_MOST} bytes")
    try:
        schema = msgspec.json.decode(schema_json)
    except RecursionError:
        raise TooMuch(f"it is nested more than {DEPTH_MOST} deep") from None
    except msgspec.DecodeError:
        # Invalid JSON is left for the server to report.
        return
    _check_size(schema)
    if _Choices(schema).of(schema) > CHOICES_MOST:
        raise TooMuch(f"it allows more than {CHOICES_MOST} values or alternatives at one place")


def _check_size(schema: object) -> None:
    elements, waiting = 0, [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH_MOST:
            raise TooMuch(f"it is nested more than {DEPTH_MOST} deep")
        children = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        elements += len(children)
        if elements > ELEMENTS_MOST:
            raise TooMuch(f"it has more than {ELEMENTS_MOST} elements")
        waiting.extend((child, depth + 1) for child in children)
        if isinstance(node, dict):
            _check_repetitions(node)


def _check_repetitions(node: dict[str, Any]) -> None:
    for name in _COUNTS:
        count = node.get(name)
        if isinstance(count, int) and count > REPETITIONS_MOST:
            raise TooMuch(f"{name} is more than {REPETITIONS_MOST}")
    if isinstance(pattern := node.get("pattern"), str):
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    if len(pattern) > PATTERN_BYTES_MOST:
        raise TooMuch(f"a pattern has more than {PATTERN_BYTES_MOST} characters")
    plain = _PATTERN_ATOMS.sub(".", pattern)
    if len(_PATTERN_REPEAT.findall(plain)) > PATTERN_REPEATS_MOST:
        raise TooMuch(f"a pattern has more than {PATTERN_REPEATS_MOST} repetitions")
    # The product of repetitions in each open group.
    products, of_last = [1], 1
    for part in _PATTERN_PARTS.finditer(plain):
        if part["open"]:
            products.append(1)
            of_last = 1
        elif part["close"]:
            of_last = products.pop() if len(products) > 1 else 1
            products[-1] = max(products[-1], of_last)
        elif part["repeat"]:
            times = max((int(number) for number in (part["least"], part["most"]) if number), default=2)
            if times > REPETITIONS_MOST or (of_last > 1 and times * of_last > PATTERN_PRODUCT_MOST):
                raise TooMuch(f"the repetitions of a pattern multiply to more than {PATTERN_PRODUCT_MOST}")
            products[-1] = max(products[-1], times * of_last)
            of_last = 1
        else:
            of_last = 1


class _Choices:
    """Counts the most alternatives that a schema allows at one position. The target of a `$ref` counts wherever it is
    referenced, and is visited once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        if id(node) not in self._known:
            # A recursive reference adds no alternatives.
            self._known[id(node)] = 1
            self._known[id(node)] = self._count(node)
        return self._known[id(node)]

    def _count(self, node: dict[str, Any]) -> int:
        counts = [1]
        if isinstance(node.get("enum"), list):
            counts.append(len(node["enum"]))
        if isinstance(node.get("type"), list):
            counts.append(len(node["type"]))
        if isinstance(node.get("pattern"), str):
            counts.append(1 + node["pattern"].count("|"))
        alternatives = [node[name] for name in _ALTERNATIVES if isinstance(node.get(name), list)]
        counts.extend(sum(map(self.of, branches)) for branches in alternatives)
        for name in ("properties", "patternProperties"):
            if isinstance(node.get(name), dict):
                counts.append(len(node[name]))
                counts.extend(self.of(value) for value in node[name].values())
        for name in ("items", "prefixItems", "additionalProperties"):
            values = node.get(name)
            counts.extend(self.of(value) for value in (values if isinstance(values, list) else [values]))
        if isinstance(node.get("$ref"), str):
            counts.append(self.of(self._named(node["$ref"])))
        return max(counts)

    def _named(self, reference: str) -> Any:
        node = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return node
