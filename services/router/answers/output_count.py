"""Counts the tokens of an answer as it streams, and finds where it is to be cut."""

import asyncio
from bisect import bisect_right
from functools import partial

from legato_protos.router.v1.router_pb2 import ToolCallDelta
from services.router.compiled import RunningCount
from services.router.prompts import tokens

# A longer part, such as a whole answer, may be cut in its middle.
_LONGEST_UNCUT_CHARACTERS = 64


class OutputCount:
    """Counts the texts that a model writes in parallel: content, reasoning and tool arguments."""

    __slots__ = ("_arguments", "_hidden", "contents", "has_hidden", "tokens")

    def __init__(self, before_tokens: int = 0, copied: "OutputCount | None" = None) -> None:
        """Begins with the tokens of earlier calls, or as another count is."""
        self.tokens = before_tokens
        self.has_hidden = False
        self._arguments: dict[int, RunningCount] = {}
        if copied is None:
            self.contents = RunningCount(tokens.counter())
            self._hidden = RunningCount(tokens.counter())
            return
        self.tokens, self.has_hidden = copied.tokens, copied.has_hidden
        self.contents, self._hidden = copied.contents.copy(), copied._hidden.copy()
        self._arguments = {index: count.copy() for index, count in copied._arguments.items()}

    def add(self, content: str, deltas: list[ToolCallDelta], hidden: str) -> None:
        """Adds the output of one read."""
        if content:
            self.tokens += self.contents.add(content)
        self.add_hidden(hidden)
        for delta in deltas:
            self.tokens += tokens.count(delta.name) + self.arguments_of(delta.index).add(delta.arguments)

    def add_hidden(self, hidden: str) -> None:
        if hidden:
            self.has_hidden = True
            self.tokens += self._hidden.add(hidden)

    def add_name(self, name: str) -> None:
        """Adds the name of a function."""
        self.tokens += tokens.count(name)

    def replace_by(self, tokens_of_provider: int) -> None:
        """Takes over the provider's own count of a whole answer."""
        self.tokens = tokens_of_provider

    def arguments_of(self, index: int) -> RunningCount:
        return self._arguments.setdefault(index, RunningCount(tokens.counter()))

    async def add_within(self, counted: RunningCount, text: str, most_tokens: int) -> str:
        """Adds as much of `text` as keeps the total within `most_tokens`, and returns it; a short text is kept whole or
        not at all. Yields to the event loop between slices."""
        kept = 0
        for piece in tokens.slices_of(text):
            left_tokens, length = most_tokens - self.tokens, len(piece)
            if counted.copy().add(piece) > left_tokens:
                if len(text) <= _LONGEST_UNCUT_CHARACTERS:
                    return ""
                tokens_of_first = partial(_tokens_of_first, counted, piece)
                length = bisect_right(range(1, length), left_tokens, key=tokens_of_first)
            kept += length
            self.tokens += counted.add(piece[:length])
            if length < len(piece):
                break
            await asyncio.sleep(0)
        return text[:kept]

    def copy(self) -> "OutputCount":
        return OutputCount(copied=self)


def _tokens_of_first(counted: RunningCount, text: str, length: int) -> int:
    """Returns the tokens that so many characters of a text would add."""
    return counted.copy().add(text[:length])
