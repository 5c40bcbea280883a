"""Marks what Anthropic may cache of a prompt: its API caches only up to marked blocks.

A request with a mark at the end of the conversation so far writes that prefix to the cache, and the next turn, which
begins with the same, reads it: for each mark, the API looks for what earlier requests have written at that block and at
the blocks before it, but not further back than some blocks. A prompt that is too short for the cache costs no more
with a mark. What was added for this turn alone, such as passages of documents, stands after the mark.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from services.router.providers.base import CannotDo
from services.router.providers.translation.turns import Conversation, ModelTurn, ResultsTurn, Text, ToolResult, Turn
from services.router.schema.tools import Function

# The API refuses a request with more.
MARKS_MOST: Final = 4
# At how many blocks the API looks for an earlier prefix, that of the mark included.
LOOKBACK_BLOCKS: Final = 20
MARK: Final = Raw(b'{"type":"ephemeral"}')


def mark_prefix(conversation: Conversation, functions: Sequence[Function], *, is_automatic: bool) -> None:
    """Marks the end of the conversation so far, if the client's own marks leave room and are not there already. Raises
    CannotDo for more marks than the API takes."""
    own = [function.cache_control or None for function in functions]
    own += [text.cache_control for text in conversation.system]
    own += [block.cache_control for turn in conversation.turns for block in _blocks(turn)]
    marks_left = MARKS_MOST - sum(mark is not None for mark in own)
    if marks_left < 0:
        raise CannotDo(f"This model takes at most {MARKS_MOST} cache_control marks in a request.", "messages")
    if is_automatic:
        for block in _prefix_ends(conversation)[:marks_left]:
            block.cache_control = MARK


def _prefix_ends(conversation: Conversation) -> list[Text | ToolResult]:
    """Returns the blocks to mark, in the order of their use: the end of the conversation so far, and that of the turn
    before if it is too far back to be found."""
    number, before, last = 0, None, None
    for turn in conversation.turns:
        if isinstance(turn, ModelTurn):
            before = last
        for block in _blocks(turn):
            number += 1
            if block is conversation.prefix_end:
                is_far = before is not None and number - before[0] >= LOOKBACK_BLOCKS
                ends = [block, before[1]] if before is not None and is_far else [block]
                return [end for end in ends if end.cache_control is None]
            last = number, block
        if isinstance(turn, ModelTurn):
            number += len(turn.calls)
    return []


def _blocks(turn: Turn) -> Sequence[Text | ToolResult]:
    """Returns the blocks of a turn that may be marked; its calls need none."""
    return turn.results if isinstance(turn, ResultsTurn) else turn.texts
