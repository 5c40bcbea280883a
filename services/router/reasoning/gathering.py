"""Gathers what a model thinks while its answer is read, for the next call of a tool to carry."""

from collections.abc import Sequence
from typing import Final

import msgspec

from services.router.reasoning.sealed_ids import MOST_CHARACTERS
from services.router.schema.thoughts import ReasoningDetail, ReasoningText, Thought, characters_of

# A detail that continues the one before has the same kind and place.
_TEXT_DETAIL: Final = "reasoning.text"


class _Detail(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    id: str | None = None
    text: str | None = None


# Errors of decoding invalid or unexpected JSON.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_details = msgspec.json.Decoder(_Detail)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class GatheredThoughts:
    """The thoughts since the last call of a tool. What is too long to be carried is not kept."""

    __slots__ = ("_characters", "_details", "_is_too_long", "_texts", "_thoughts")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        # Readable reasoning, by the field that it came in.
        self._texts: dict[str, list[str]] = {}
        self._details: list[msgspec.Raw] = []
        self._thoughts: list[Thought] = []
        self._characters = 0
        self._is_too_long = False

    def add_text(self, text: str, field: str) -> None:
        if self._has_room(len(text)):
            self._texts.setdefault(field, []).append(text)

    def add_details(self, details: Sequence[msgspec.Raw]) -> None:
        """Adds objects of `reasoning_details`."""
        for detail in details:
            if self._has_room(len(memoryview(detail))):
                self._details.append(msgspec.Raw(bytes(detail)))

    def add(self, thought: Thought) -> None:
        if self._has_room(characters_of([thought])):
            self._thoughts.append(thought)

    def take(self) -> Sequence[Thought]:
        """Returns the thoughts, and begins anew."""
        if not self._characters:
            return ()
        thoughts: list[Thought] = []
        if not self._is_too_long:
            # Details say the same as a text beside them, and more.
            texts = {} if self._details else self._texts
            thoughts += [ReasoningText("".join(parts), field) for field, parts in texts.items()]
            thoughts += _joined(self._details)
            thoughts += self._thoughts
        self._reset()
        return thoughts

    def _has_room(self, characters: int) -> bool:
        self._characters += characters
        if self._characters > MOST_CHARACTERS:
            self._is_too_long = True
            self._texts, self._details, self._thoughts = {}, [], []
        return not self._is_too_long and characters > 0


def _joined(details: Sequence[msgspec.Raw]) -> list[Thought]:
    """Joins the details of a stream: the text of one comes in many."""
    joined: list[dict[str, msgspec.Raw]] = []
    texts: list[list[str]] = []
    last: _Detail | None = None
    for raw in details:
        try:
            detail, fields = _details.decode(raw), _objects.decode(raw)
        except UNREADABLE:
            continue
        is_text = detail.type == _TEXT_DETAIL
        if is_text and last is not None and (last.type, last.index, last.id) == (detail.type, detail.index, detail.id):
            texts[-1].append(detail.text or "")
            joined[-1] |= {name: value for name, value in fields.items() if value != b"null" and name != "text"}
        else:
            joined.append(fields)
            texts.append([detail.text or ""] if is_text else [])
        last = detail
    for fields, parts in zip(joined, texts, strict=True):
        if parts:
            fields["text"] = msgspec.Raw(msgspec.json.encode("".join(parts)))
    return [ReasoningDetail(msgspec.json.encode(fields).decode()) for fields in joined]
