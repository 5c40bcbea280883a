"""Counts the tokens of an answer as it streams, and finds where it is to be cut."""

import asyncio

from protos.router.v1.router_pb2 import ToolCallDelta
from services.router.compiled import RunningCount
from services.router.prompts import tokens

# A longer part, such as a whole answer, may be cut in its middle.
_LONGEST_UNCUT_CHARACTERS = 64


class OutputCount:
    """Counts the texts that a model writes in parallel: content, reasoning and tool arguments."""

    __slots__ = ("_arguments", "_hidden", "contents", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.contents = RunningCount(tokens.counter())
        self._hidden = RunningCount(tokens.counter())
        self._arguments: dict[int, RunningCount] = {}

    def add(self, content: str, deltas: list[ToolCallDelta], hidden: str) -> None:
        """Adds the output of one read."""
        self.add_content(content)
        self.add_hidden(hidden)
        for delta in deltas:
            self.add_delta(delta)

    async def add_all(self, content: str, deltas: list[ToolCallDelta], hidden: str) -> None:
        """Adds output that may be long, yielding to the event loop between slices."""
        *slices, last = tokens.slices_of(content)
        for piece in slices:
            self.add_content(piece)
            await asyncio.sleep(0)
        self.add(last, deltas, hidden)

    def add_content(self, content: str) -> None:
        if content:
            self.tokens += self.contents.add(content)

    def add_hidden(self, hidden: str) -> None:
        if hidden:
            self.tokens += self._hidden.add(hidden)

    def add_delta(self, delta: ToolCallDelta) -> None:
        self.tokens += tokens.count(delta.name) + self.arguments_of(delta.index).add(delta.arguments)

    def arguments_of(self, index: int) -> RunningCount:
        return self._arguments.setdefault(index, RunningCount(tokens.counter()))

    async def add_within(self, counted: RunningCount, text: str, most_tokens: int) -> str:
        """Adds as much of `text` as keeps the total within `most_tokens`, and returns it; a short text is kept whole or
        not at all. Yields to the event loop between slices."""
        kept = 0
        for piece in tokens.slices_of(text):
            length, added = await _longest_within(counted, piece, most_tokens - self.tokens)
            if length < len(piece) and len(text) <= _LONGEST_UNCUT_CHARACTERS:
                return ""
            kept += length
            self.tokens += added
            if length:
                counted.add(piece[:length])
            if length < len(piece):
                break
            await asyncio.sleep(0)
        return text[:kept]

    def copy(self) -> "OutputCount":
        other = OutputCount()
        other.tokens, other.contents, other._hidden = self.tokens, self.contents.copy(), self._hidden.copy()
        other._arguments = {index: count.copy() for index, count in self._arguments.items()}
        return other


async def _longest_within(counted: RunningCount, text: str, most_tokens: int) -> tuple[int, int]:
    """Returns the length of the longest prefix within this many tokens, and its tokens."""
    found, tokens_found = 0, 0
    # Binary search that tries the whole text first.
    length, step = len(text), len(text)
    while step:
        added_tokens = counted.copy().add(text[:length])
        if added_tokens <= most_tokens:
            found, tokens_found = length, added_tokens
        if found == len(text):
            break
        step //= 2
        length = found + step
        await asyncio.sleep(0)
    return found, tokens_found
