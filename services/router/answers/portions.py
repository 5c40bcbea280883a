"""What one read from a provider brought, in portions that can be counted and sent without holding up others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from services.router.answers.toolcalls import ToolCallFragment
from services.router.providers.base import Piece

# Nearly every piece has far less. To count this much takes some milliseconds; and it fits one item of an exchange.
PORTION_CHARACTERS: Final = 128 * 1024


def is_long(piece: Piece) -> bool:
    characters = sum(map(len, piece.contents)) + len(piece.hidden)
    if piece.tool_calls:
        characters += sum(len(_arguments(fragment)) for fragment in piece.tool_calls)
    return characters > PORTION_CHARACTERS


def portions_of(piece: Piece) -> Iterator[Piece]:
    """Its thoughts, then its texts, then its calls, in their order. How it ended stands in the last."""
    for hidden in _cut(piece.hidden):
        yield Piece(hidden=hidden)
    for contents in _together([slice_ for content in piece.contents for slice_ in _cut(content)]):
        yield Piece(contents=contents, refuses=piece.refuses)
    for fragment in piece.tool_calls:
        for cut_fragment in _cut_call(fragment):
            yield Piece(tool_calls=[cut_fragment])
    yield replace(piece, contents=[], tool_calls=[], hidden="", refuses=False)


def _arguments(fragment: ToolCallFragment) -> str:
    if isinstance(fragment.arguments, dict):
        fragment.arguments = msgspec.json.encode(fragment.arguments).decode()
    return fragment.arguments or ""


def _cut(text: str) -> Iterator[str]:
    for begin in range(0, len(text), PORTION_CHARACTERS):
        yield text[begin : begin + PORTION_CHARACTERS]


def _together(texts: list[str]) -> Iterator[list[str]]:
    """As many in each as fit."""
    portion: list[str] = []
    characters = 0
    for text in texts:
        if portion and characters + len(text) > PORTION_CHARACTERS:
            yield portion
            portion, characters = [], 0
        portion.append(text)
        characters += len(text)
    if portion:
        yield portion


def _cut_call(fragment: ToolCallFragment) -> Iterator[ToolCallFragment]:
    """The name and the id on the first; the others are found by the index, or as the call that was spoken of last."""
    first, *others = list(_cut(_arguments(fragment))) or [""]
    yield ToolCallFragment(fragment.index, fragment.call_id, fragment.name, first)
    for arguments in others:
        yield ToolCallFragment(index=fragment.index, arguments=arguments)
