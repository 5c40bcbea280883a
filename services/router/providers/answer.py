"""An answer as it comes from a provider, put into pieces."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

import msgspec

from services.router.providers.base import Piece, ProviderError, ProviderUsage
from services.router.toolcalls import ToolCallFragment

# What comes of reading what a provider sent, where that is no JSON, or other JSON than it should be. Of what is nested
# too deeply nobody knows what it is.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Nonsense(ProviderError):
    """Something that could not be read; nothing was taken from it."""


class Answer(ABC):
    """Each provider's wire inherits from it, and tells by `say`, `refuse`, `think`, `call`, `finish` what it reads."""

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.usage: ProviderUsage | None = None
        # The provider has said why it ends: nothing but its usage can follow.
        self.is_finished = False
        # Nothing at all follows, though the connection may stay open.
        self.is_over = False

    @abstractmethod
    def read_event(self, data: bytes) -> None:
        """One event of a stream."""

    @abstractmethod
    def read_whole(self, body: bytes) -> None:
        """An answer in one piece."""

    def begin_piece(self) -> None:
        self.pieces.append(Piece())

    def say(self, text: str) -> None:
        # In a piece the texts stand before the tool calls, and are of one kind.
        piece = self.pieces[-1]
        if piece.tool_calls or piece.refuses:
            self.begin_piece()
        self.pieces[-1].contents.append(text)

    def refuse(self, text: str) -> None:
        """What the model says in place of an answer, where its provider tells one from the other."""
        piece = self.pieces[-1]
        if piece.tool_calls or (piece.contents and not piece.refuses):
            self.begin_piece()
        self.pieces[-1].refuses = True
        self.pieces[-1].contents.append(text)

    def think(self, text: str) -> None:
        self.pieces[-1].hidden += text

    def call(self, fragment: ToolCallFragment) -> None:
        self.pieces[-1].tool_calls.append(fragment)

    def finish(self, reason: str) -> None:
        """`reason` is one of OpenAI's words, or of its dialects'."""
        self.pieces[-1].finish_reason = reason
        self.is_finished = True

    def end(self) -> None:
        """Everything has come."""
        if not self.is_finished:
            raise ProviderError("ended its stream before the answer was complete")
        if not self.pieces:
            self.begin_piece()
        self.pieces[-1].last = True
        self.pieces[-1].usage = self.usage
