"""The common base of the parsers of providers' answers."""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from services.router.providers.base import (
    LARGEST_TOKENS,
    UNREADABLE,
    Piece,
    ProviderError,
    ProviderUsage,
    as_count,
)
from services.router.providers.errors.classify import ErrorPatterns, read_failure
from services.router.reasoning.gathering import GatheredThoughts
from services.router.schema.citations import VendorCitations
from services.router.schema.tools import ToolCallFragment

# Longer text, of any kind, becomes several pieces. Counting the tokens of this much takes some milliseconds.
LARGEST_PIECE_CHARACTERS: Final = 64 * 1024
# Limit per answer. A call may be identified in three ways: by its index, its id or its name.
MOST_TOOL_CALLS: Final = 1024
_WAYS_TO_TELL_A_CALL: Final = 3
# Some servers embed the model's signature in the id.
LONGEST_CALL_ID_CHARACTERS: Final = 16 * 1024
LONGEST_NAME_CHARACTERS: Final = 1024


class UnreadableAnswer(ProviderError):
    """A part of the answer could not be decoded; nothing was taken from it."""


# A missing or null field. Missing is a singleton, which makes the comparison fast.
ABSENT: Final = Raw()
NOTHING: Final = (ABSENT, Raw(b"null"))

_MOST_DIGITS: Final = len(str(LARGEST_TOKENS))
_Fields = TypeVar("_Fields", bound=msgspec.Struct)


class _Error(msgspec.Struct, gc=False):
    code: int


class _Named(msgspec.Struct, gc=False):
    model: str | None = None
    model_version: str | None = msgspec.field(name="modelVersion", default=None)


_errors = msgspec.json.Decoder(_Error)
_named = msgspec.json.Decoder(_Named)
_MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}")


class ProviderAnswer(ABC):
    """Base class of each provider's parser, which reports by `add_texts`, `refuse`, `think`, `call`, `cite` and
    `finish`."""

    # What an answer is called.
    format_name: ClassVar[str]
    error_patterns: ClassVar[ErrorPatterns]
    # Whether the format is OpenAI's, whose reads a sink may take unparsed.
    has_plain_reads = False

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.usage: ProviderUsage | None = None
        # Whether usage has the model, too.
        self.is_traced = False
        self._model_name = ""
        # Gathers what the model thinks, if its next turn may need it.
        self.thoughts: GatheredThoughts | None = None
        # Whether the client is shown thoughts before the texts that follow them, and not only with calls.
        self.shows_thoughts = False
        # The client's names of functions that the model knows by other names.
        self.tool_names: Mapping[str, str] = {}
        # The provider has sent a finish reason: only usage can follow.
        self.is_finished = False
        # Nothing more follows, though the connection may stay open.
        self.is_over = False
        # Length of the last piece.
        self._characters = 0
        self._call_marks: set[tuple[int | None, str | None, str | None]] = set()
        self._calls_without_id = 0
        # Of the usage, so far.
        self._counted: dict[str, int] = {}
        # None as long as there are none.
        self._citations: VendorCitations | None = None

    def expect(
        self,
        tool_names: Mapping[str, str],
        thoughts: GatheredThoughts | None,
        *,
        is_traced: bool,
        shows_thoughts: bool,
    ) -> None:
        """Is called before the answer is read, with what is wanted of it besides the text."""
        self.tool_names, self.thoughts = tool_names, thoughts
        self.is_traced, self.shows_thoughts = is_traced, shows_thoughts

    def read_event(self, data: bytes) -> None:
        """Reads one event of a stream. Raises UnreadableAnswer, or another ProviderError."""
        try:
            self._read_event(data)
        except UNREADABLE:
            raise self._unreadable() from None

    def read_whole(self, body: bytes) -> None:
        """Reads an answer that was not streamed."""
        try:
            self._read_whole(body)
        except UNREADABLE:
            raise self._unreadable() from None

    def _unreadable(self) -> UnreadableAnswer:
        return UnreadableAnswer(f"sent something that is not {self.format_name}")

    @abstractmethod
    def _read_event(self, data: bytes) -> None: ...

    @abstractmethod
    def _read_whole(self, body: bytes) -> None: ...

    def _failure(self, error: Raw | bytes) -> ProviderError:
        """Classifies an error sent in place of an answer."""
        return read_failure(self._status_of(error), bytes(error), self.error_patterns)

    def _status_of(self, error: Raw | bytes) -> int:
        """Returns the HTTP status of an error, which most servers put in `code`."""
        try:
            return _errors.decode(error).code
        except UNREADABLE:
            return 500

    def _note_model(self, said: Raw | bytes) -> None:
        """Records the model that a traced answer names. What does not look like a name could be anything."""
        with suppress(*UNREADABLE):
            named = _named.decode(said)
            name = named.model or named.model_version or ""
            self._model_name = name if _MODEL_NAME.fullmatch(name) else ""

    def _count(self, usage: Raw, fields: msgspec.json.Decoder[_Fields]) -> dict[str, int]:
        """Returns the counts so far. They are cumulative, so later ones replace earlier ones."""
        self._counted |= read_counts(usage, fields)
        return self._counted

    def begin_piece(self) -> None:
        self.pieces.append(Piece())
        self._characters = 0

    def add_texts(self, *texts: str) -> None:
        characters = self._characters + sum(map(len, texts))
        if self.shows_thoughts:
            self._add_thoughts()
        # Texts in a piece precede its tool calls and are of one kind.
        piece = self.pieces[-1]
        if characters > LARGEST_PIECE_CHARACTERS or piece.tool_calls or piece.refuses:
            for text in texts:
                self._add_parts(text, refuses=False)
            return
        self._characters = characters
        piece.contents += texts

    def refuse(self, text: str) -> None:
        """Adds text of a refusal, for providers that distinguish it from an answer."""
        if self.shows_thoughts:
            self._add_thoughts()
        self._add_parts(text, refuses=True)

    def _add_parts(self, text: str, *, refuses: bool) -> None:
        for part in parts_of(text):
            piece = self._piece_for(part)
            if piece.tool_calls or (piece.contents and piece.refuses is not refuses):
                self.begin_piece()
            self.pieces[-1].refuses = refuses
            self.pieces[-1].contents.append(part)

    def think(self, text: str) -> None:
        """Adds reasoning. Call it once per event: each call copies the text so far."""
        for part in parts_of(text):
            self._piece_for(part).hidden += part

    def _add_thoughts(self) -> None:
        if self.thoughts is not None and (thoughts := self.thoughts.take()):
            piece = self.pieces[-1]
            piece.thoughts_before = (*piece.thoughts_before, *thoughts)

    def call(self, fragment: ToolCallFragment) -> None:
        self._refuse_too_many(fragment)
        if self.tool_names and fragment.name:
            fragment.name = self.tool_names.get(fragment.name, fragment.name)
        if self.thoughts is not None and (fragment.name or fragment.call_id):
            fragment.thoughts = (*self.thoughts.take(), *fragment.thoughts)
        arguments = fragment.arguments
        if arguments is None or len(arguments) <= LARGEST_PIECE_CHARACTERS:
            self._piece_for(arguments or "").tool_calls.append(fragment)
            return
        call_id, name, thoughts = fragment.call_id, fragment.name, fragment.thoughts
        for part in parts_of(arguments):
            self._piece_for(part).tool_calls.append(ToolCallFragment(fragment.index, call_id, name, part, thoughts))
            # Sent once; the following fragments continue the same call.
            call_id, name, thoughts = None, None, ()

    def cite(self, start: int, end: int, title: str | None, url: str | None) -> None:
        """Adds a page that a part of the text cites, in characters of the whole text."""
        if self._citations is None:
            self._citations = VendorCitations()
        self._citations.add(start, end, title, url)

    def finish(self, reason: str) -> None:
        """Records the finish reason, in OpenAI's terms or those of its dialects."""
        self.pieces[-1].finish_reason = reason
        self.is_finished = True

    def close(self) -> None:
        """Marks the last piece, once the whole answer has been received."""
        if not self.is_finished:
            raise ProviderError("ended its stream before the answer was complete")
        if not self.pieces:
            self.begin_piece()
        if self.usage is not None and self._model_name:
            self.usage = replace(self.usage, model_name=self._model_name)
        last = self.pieces[-1]
        last.finish(last.finish_reason, self.usage, () if self.thoughts is None else self.thoughts.take())
        if self._citations is not None:
            last.citations = self._citations.in_order()

    def _piece_for(self, text: str) -> Piece:
        """Returns the last piece, or a new one if the text does not fit."""
        if self._characters and self._characters + len(text) > LARGEST_PIECE_CHARACTERS:
            self.begin_piece()
        self._characters += len(text)
        return self.pieces[-1]

    def _refuse_too_many(self, fragment: ToolCallFragment) -> None:
        if (
            len(fragment.call_id or "") > LONGEST_CALL_ID_CHARACTERS
            or len(fragment.name or "") > LONGEST_NAME_CHARACTERS
        ):
            raise ProviderError("gave a tool call an endless name")
        if fragment.name and not fragment.call_id:
            # Without an id, every name begins a call.
            self._calls_without_id += 1
        else:
            self._call_marks.add((fragment.index, fragment.call_id, fragment.name))
        if self._calls_without_id + len(self._call_marks) > _WAYS_TO_TELL_A_CALL * MOST_TOOL_CALLS:
            raise ProviderError("made too many tool calls")


def parts_of(text: str) -> Iterator[str]:
    for start in range(0, len(text), LARGEST_PIECE_CHARACTERS):
        yield text[start : start + LARGEST_PIECE_CHARACTERS]


def read_text_of_object(said: msgspec.Raw) -> str:
    """Returns the JSON of an object unchanged; only the client interprets its fields."""
    said_json = bytes(said)
    if not said_json.startswith(b"{"):
        raise msgspec.ValidationError
    return said_json.decode()


def read_counts(said: Raw, fields: msgspec.json.Decoder[_Fields]) -> dict[str, int]:
    """Returns the valid counts among a provider's fields, each of which is `Raw`. They are decoded separately: an
    invalid count does not break a complete answer, and other fields stay undecoded."""
    try:
        told = fields.decode(said)
    except UNREADABLE:
        return {}
    counted = {}
    for name in told.__struct_fields__:
        value = getattr(told, name)
        if value is ABSENT:
            continue
        digits = bytes(value)
        if len(digits) <= _MOST_DIGITS and digits.isdigit() and (count := int(digits)) <= LARGEST_TOKENS:
            counted[name] = count
    return counted


def total(first: int | None, *others: int | None) -> int | None:
    """Sums counts of which the first is required; None if it is missing or the sum is invalid."""
    return None if first is None else as_count(first + sum(other or 0 for other in others))
