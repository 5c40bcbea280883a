"""Answers of every vendor, changed in their structure: what is in them, how often, how large and how deep."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.services.router.providers import wires

Random = random.Random

# The data of the events of a stream, in objects.
STREAMS: Final[dict[str, list[Any]]] = {
    "openai": wires.ALL,
    "anthropic": [wires.START, *wires.text_block(), *wires.TWO_TOOLS, *wires.STOP],
    "gemini": wires.ALL_CONTENTS,
}
WHOLES: Final[dict[str, Any]] = {
    "openai": json.loads(wires.openai_whole()),
    "anthropic": json.loads(wires.anthropic().whole),
    "gemini": json.loads(wires.gemini(*wires.ALL_PARTS).whole),
}
_USAGE_NAMES: Final = ("usage", "usageMetadata", "prompt_tokens_details", "x_groq", "error", "message", "metadata")
_EXTREMES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 10**30, 1e308, 0.5),
    *("", "x", [], {}, [[]], [{}], {"a": {}}),
)
_ODD_BYTES: Final = (
    *(b"[" * 100_000, b'{"a":' * 20_000, b"\x00", b"\xff", b"\n\n", b"\r"),
    *(b'"', b"\\ud83d", b"}", b"data: ", b"\xef\xbb\xbf"),
)


@dataclass(frozen=True)
class Body:
    content: bytes
    is_stream: bool
    # What was done to it, for the report.
    changes: tuple[str, ...]


def random_body(chance: Random, vendor: str, largest_bytes: int) -> Body:
    is_stream = chance.random() < 0.6
    said = json.loads(json.dumps(STREAMS[vendor] if is_stream else [WHOLES[vendor]]))
    changes = []
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        change = chance.choice(_CHANGES)
        said = change(chance, said, largest_bytes)
        changes.append(change.__name__.strip("_"))
        written = json.dumps(said)
        # Anew, so that what was repeated is not one and the same.
        said = json.loads(written)
        if len(written) > largest_bytes // 2:
            break
    if is_stream:
        content = _as_events(chance, said, largest_bytes)
    else:
        content = _as_json(chance, said[0] if len(said) == 1 else said)
    if chance.random() < 0.15:
        content = _with_odd_bytes(chance, content)
        changes.append("odd bytes")
    return Body(content[: 4 * largest_bytes], is_stream, tuple(changes))


# Changes of what is said.


def _repeat_an_element(chance: Random, said: Any, largest_bytes: int) -> Any:
    lists = [place for place in _places(said) if isinstance(place, list) and place]
    if not lists:
        return said
    chosen = chance.choice(lists)
    at = chance.randrange(len(chosen))
    element_bytes = len(json.dumps(chosen[at])) + 1
    chosen[at:at] = [chosen[at]] * _amount(chance, largest_bytes // element_bytes)
    return said


def _count_up(chance: Random, said: Any, largest_bytes: int) -> Any:
    """Appends unlike elements: other indexes, ids and names."""
    lists = [place for place in _places(said) if isinstance(place, list) and any(isinstance(e, dict) for e in place)]
    if not lists:
        return said
    chosen = chance.choice(lists)
    pattern = chance.choice([element for element in chosen if isinstance(element, dict)])
    pattern_json = json.dumps(pattern)
    for number in range(_amount(chance, largest_bytes // (len(pattern_json) + 4))):
        chosen.append(_numbered(json.loads(pattern_json), number))
    return said


def _add_empty_lists(chance: Random, said: Any, largest_bytes: int) -> Any:
    tables = [place for place in _places(said) if isinstance(place, dict)]
    if tables:
        empty: Any = chance.choice(([], {}, "", 0, None, {"a": 1}))
        many = [empty] * _amount(chance, largest_bytes // 4)
        chosen = chance.choice(tables)
        name = chance.choice((*_USAGE_NAMES, *chosen))
        chosen[name] = many if chance.random() < 0.5 else {"a": many}
    return said


def _add_fields(chance: Random, said: Any, largest_bytes: int) -> Any:
    tables = [place for place in _places(said) if isinstance(place, dict)]
    if tables:
        chosen = chance.choice(tables)
        chosen |= {f"f{number}": 0 for number in range(_amount(chance, largest_bytes // 12))}
    return said


def _lengthen_a_text(chance: Random, said: Any, largest_bytes: int) -> Any:
    letters = chance.choice(("a", " ", "\n", '"', "\\", "{", "é", "中", "😀", "a b ", "\x00", "0"))
    text = letters * _amount(chance, largest_bytes // len(json.dumps(letters)))
    return _replace(chance, said, lambda value: text if isinstance(value, str) else value)


def _replace_a_value(chance: Random, said: Any, largest_bytes: int) -> Any:
    return _replace(chance, said, lambda value: json.loads(json.dumps(chance.choice(_EXTREMES))))


def _nest_a_value(chance: Random, said: Any, largest_bytes: int) -> Any:
    depth = _amount(chance, 200)

    def nest(value: Any) -> Any:
        for _ in range(depth):
            value = [value]
        return value

    return _replace(chance, said, nest)


def _take_away(chance: Random, said: Any, largest_bytes: int) -> Any:
    tables = [place for place in _places(said) if isinstance(place, dict) and place]
    if tables:
        chosen = chance.choice(tables)
        del chosen[chance.choice(list(chosen))]
    return said


def _shuffle(chance: Random, said: Any, largest_bytes: int) -> Any:
    if isinstance(said, list):
        chance.shuffle(said)
    return said


_CHANGES: Final[tuple[Callable[[Random, Any, int], Any], ...]] = (
    _repeat_an_element,
    _count_up,
    _add_empty_lists,
    _add_fields,
    _lengthen_a_text,
    _replace_a_value,
    _nest_a_value,
    _take_away,
    _shuffle,
)


# How it is written.


def _as_json(chance: Random, value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, None, 1)))
    return text.encode("utf-8", "surrogatepass")


def _as_events(chance: Random, said: list[Any], largest_bytes: int) -> bytes:
    end = chance.choice((b"\n", b"\n", b"\r\n", b"\r"))
    before = chance.choice((b"data: ", b"data: ", b"data:", b"event: x" + end + b"data: "))
    style = chance.choice(("plain", "plain", "plain", "many lines", "comments", "empty events", "unended"))
    events = [event.encode() if isinstance(event, str) else _as_json(chance, event) for event in said]
    written = []
    for event in events:
        lines = event.replace(b"\r", b"\n").split(b"\n")
        if style == "many lines" and chance.random() < 0.3:
            lines[1:1] = [b""] * _amount(chance, largest_bytes // len(before))
        written.append(end.join(before + line for line in lines) + end + (b"" if style == "unended" else end))
        if style == "comments":
            written.append((b": " + b"x" * _amount(chance, 200) + end) * _amount(chance, largest_bytes // 200))
        if style == "empty events":
            written.append((before + end + end) * _amount(chance, largest_bytes // (len(before) + 2)))
        if sum(map(len, written)) > largest_bytes * 2:
            break
    return b"".join(written)


def _with_odd_bytes(chance: Random, content: bytes) -> bytes:
    at = chance.randrange(len(content) + 1)
    odd = chance.choice(_ODD_BYTES)
    return content[:at] + odd + content[at + chance.choice((0, 1, 7)) :]


# Helpers.


def _amount(chance: Random, most: int) -> int:
    """Small ones as often as large ones."""
    return min(most, int(2 ** chance.uniform(0, max(1, most).bit_length()))) if most > 0 else 0


def _places(value: Any) -> list[Any]:
    """Every table and list in it; of long lists the first ones."""
    found: list[Any] = []
    left = [value]
    while left and len(found) < 400:
        place = left.pop(0)
        if isinstance(place, dict | list):
            found.append(place)
            left += list(place.values() if isinstance(place, dict) else place)[:50]
    return found


def _replace(chance: Random, said: Any, change: Callable[[Any], Any]) -> Any:
    places = [place for place in _places(said) if place]
    if not places:
        return said
    place = chance.choice(places)
    key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
    place[key] = change(place[key])
    return said


def _numbered(value: Any, number: int) -> Any:
    for place in _places(value):
        if isinstance(place, dict):
            for key in ("index", "id", "name"):
                if key in place:
                    place[key] = number if key == "index" else f"{key}{number}"
    return value
