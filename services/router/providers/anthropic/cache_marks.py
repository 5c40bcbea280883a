"""Marks what Anthropic may cache of a prompt: its API caches only up to marked blocks.

A request with a mark at the end of the conversation so far writes that prefix to the cache, and the next turn, which
begins with the same, reads it: for each mark, the API looks for what earlier requests have written at that block and at
the blocks before it, but not further back than some blocks. So an earlier end of the conversation is marked, too: the
last one that would not be found from the new end. Other conversations begin with the same system messages and tools,
whose ends are marked for them. A prompt that is too short for the cache costs no more with a mark, and several marks
cost no more than the last of them. What was added for this turn alone, such as passages of documents, stands after the
marks.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from services.chassis.sentence import Sentence
from services.router.providers.base import CannotDo
from services.router.providers.translation.turns import (
    Conversation,
    ModelTurn,
    ResultsTurn,
    Text,
    ToolResult,
    Turn,
)
from services.router.schema.tools import Function

# The API refuses a request with more.
MARKS_MOST: Final = 4
# At how many blocks the API looks for an earlier prefix, that of the mark included.
LOOKBACK_BLOCKS: Final = 20
# Kept for five minutes, and for an hour.
MARK: Final = Raw(b'{"type":"ephemeral"}')
LONG_MARK: Final = Raw(b'{"type":"ephemeral","ttl":"1h"}')

_Block = Text | ToolResult | Function


class _Mark(msgspec.Struct):
    ttl: str = ""


_marks = msgspec.json.Decoder(_Mark)


def mark_prefix(conversation: Conversation, functions: Sequence[Function], *, is_automatic: bool) -> Sequence[Function]:
    """Marks the blocks of a conversation, as far as the client's own marks leave room and are not there already, and
    returns the functions, marked too. Raises CannotDo for more marks than the API takes."""
    # Those of the request are shared by its calls of several models.
    functions = [*functions[:-1], *map(msgspec.structs.replace, functions[-1:])]
    blocks: list[_Block] = [*functions, *conversation.system]
    blocks += [block for turn in conversation.turns for block in _blocks(turn)]
    theirs = [(place, block.cache_control) for place, block in enumerate(blocks) if block.cache_control]
    marks_left = MARKS_MOST - len(theirs)
    if marks_left < 0:
        raise CannotDo(Sentence("cache_marks_most", most=MARKS_MOST), "messages")
    if is_automatic:
        ends = [*_conversation_ends(conversation), *conversation.system[-1:], *functions[-1:]]
        chosen = {id(end) for end in [end for end in ends if not end.cache_control][:marks_left]}
        for place, block in enumerate(blocks):
            if id(block) in chosen:
                block.cache_control = _mark_at(place, theirs)
    return functions


def _mark_at(place: int, theirs: Sequence[tuple[int, Raw]]) -> Raw:
    """Returns a mark that is kept as long as the client's next one, or else its last: what is kept for longer may not
    follow what is kept for less."""
    behind = (mark for at, mark in theirs if at > place)
    mark = next(behind, theirs[-1][1] if theirs else MARK)
    try:
        return LONG_MARK if _marks.decode(mark).ttl == "1h" else MARK
    except (msgspec.DecodeError, RecursionError):
        return MARK


def _conversation_ends(conversation: Conversation) -> list[Text | ToolResult]:
    """Returns the blocks to mark, in the order of their use: the end of the conversation so far, and that of the latest
    turn that is too far back to be found from there."""
    number, last = 0, None
    ends: list[tuple[int, Text | ToolResult]] = []
    for turn in conversation.turns:
        if isinstance(turn, ModelTurn) and last is not None:
            ends.append(last)
        for block in _blocks(turn):
            number += 1
            if block is conversation.prefix_end:
                far = [end for at, end in ends if number - at >= LOOKBACK_BLOCKS]
                return [block, *far[-1:]]
            last = number, block
        if isinstance(turn, ModelTurn):
            number += len(turn.calls)
    return []


def _blocks(turn: Turn) -> Sequence[Text | ToolResult]:
    """Returns the blocks of a turn that may be marked; its calls need none."""
    return turn.results if isinstance(turn, ResultsTurn) else turn.texts
