"""An answer as it comes from a provider, put into pieces."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from services.router.answers.toolcalls import ToolCallFragment
from services.router.providers.base import Piece, ProviderError, ProviderUsage

# What comes of reading what a provider sent, where that is no JSON, or other JSON than it should be. Of what is nested
# too deeply nobody knows what it is.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Of texts of all kinds; what is longer becomes several pieces. To count the tokens of so much takes some milliseconds.
LARGEST_PIECE_CHARACTERS: Final = 64 * 1024
# In one answer. A call may be told of in three ways: by its place, by its id, and by its name.
MOST_TOOL_CALLS: Final = 1024
_WAYS_TO_TELL_A_CALL: Final = 3
# Ids of some servers bring the model's signature along.
LONGEST_CALL_ID_CHARACTERS: Final = 16 * 1024
LONGEST_NAME_CHARACTERS: Final = 1024


class UnreadableAnswer(ProviderError):
    """Something that could not be read; nothing was taken from it."""


class ProviderAnswer(ABC):
    """Each provider's wire inherits from it, and tells by `say`, `refuse`, `think`, `call`, `finish` what it reads."""

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.usage: ProviderUsage | None = None
        # The provider has said why it ends: nothing but its usage can follow.
        self.is_finished = False
        # Nothing at all follows, though the connection may stay open.
        self.is_over = False
        # Of the last piece.
        self._characters = 0
        self._call_marks: set[tuple[int | None, str | None, str | None]] = set()
        self._calls_without_id = 0

    @abstractmethod
    def read_event(self, data: bytes) -> None:
        """One event of a stream."""

    @abstractmethod
    def read_whole(self, body: bytes) -> None:
        """An answer in one piece."""

    def begin_piece(self) -> None:
        self.pieces.append(Piece())
        self._characters = 0

    def add_text(self, text: str) -> None:
        characters = self._characters + len(text)
        if characters > LARGEST_PIECE_CHARACTERS:
            self._say_much(text)
            return
        self._characters = characters
        # In a piece the texts stand before the tool calls, and are of one kind.
        piece = self.pieces[-1]
        if piece.tool_calls or piece.refuses:
            self.begin_piece()
        self.pieces[-1].contents.append(text)

    def refuse(self, text: str) -> None:
        """What the model says in place of an answer, where its provider tells one from the other."""
        for part in _parts_of(text):
            piece = self._piece_for(part)
            if piece.tool_calls or (piece.contents and not piece.refuses):
                self.begin_piece()
            self.pieces[-1].refuses = True
            self.pieces[-1].contents.append(part)

    def think(self, text: str) -> None:
        """All that one event brings of it is told at once: a text that grows is copied each time."""
        for part in _parts_of(text):
            self._piece_for(part).hidden += part

    def call(self, fragment: ToolCallFragment) -> None:
        self._refuse_too_many(fragment)
        arguments = fragment.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if arguments is None or len(arguments) <= LARGEST_PIECE_CHARACTERS:
            self._piece_for(arguments or "").tool_calls.append(fragment)
            return
        call_id, name = fragment.call_id, fragment.name
        for part in _parts_of(arguments):
            self._piece_for(part).tool_calls.append(ToolCallFragment(fragment.index, call_id, name, part))
            # Said once; what follows is more of the call that was spoken of last.
            call_id, name = None, None

    def finish(self, reason: str) -> None:
        """`reason` is one of OpenAI's words, or of its dialects'."""
        self.pieces[-1].finish_reason = reason
        self.is_finished = True

    def close(self) -> None:
        """Everything has come."""
        if not self.is_finished:
            raise ProviderError("ended its stream before the answer was complete")
        if not self.pieces:
            self.begin_piece()
        self.pieces[-1].last = True
        self.pieces[-1].usage = self.usage

    def _say_much(self, text: str) -> None:
        for part in _parts_of(text):
            piece = self._piece_for(part)
            if piece.tool_calls or piece.refuses:
                self.begin_piece()
            self.pieces[-1].contents.append(part)

    def _piece_for(self, text: str) -> Piece:
        """The last one, if it has room for so much."""
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


def _parts_of(text: str) -> Iterator[str]:
    for start in range(0, len(text), LARGEST_PIECE_CHARACTERS):
        yield text[start : start + LARGEST_PIECE_CHARACTERS]


def read_text_of_object(said: msgspec.Raw) -> str:
    """The JSON of an object, as it was said. Its fields are the client's business."""
    said_json = bytes(said)
    if not said_json.startswith(b"{"):
        raise msgspec.ValidationError
    return said_json.decode()
