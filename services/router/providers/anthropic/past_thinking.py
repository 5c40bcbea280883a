"""Writes what Claude thought in earlier turns as the blocks that it came in.

Newer models check that nothing before a block has changed since it was written, and refuse the request otherwise.
Clients shorten conversations, and an operator may change the character, so they are asked to leave such a block out
instead.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from services.router.providers.base import ProviderCall
from services.router.providers.translation.conversion import merged
from services.router.providers.translation.model_names import plain_name
from services.router.providers.translation.turns import Conversation, ModelTurn, PastCall, Text
from services.router.schema.thoughts import RedactedBlock, ThinkingBlock

THOUGHTS: Final = (ThinkingBlock, RedactedBlock)
BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
_LEAVE_CHANGED_OUT: Final[Mapping[str, object]] = {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "drop_block"},
}
_MODEL_NAME: Final = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")
_BINDING_SINCE: Final = (5, 5)
_FAMILIES_THAT_BIND_SINCE: Final = {"fable": (5, 1), "mythos": (5, 1)}


def binds_thoughts(call: ProviderCall) -> bool:
    """Returns whether a call sends thoughts to a model that checks what comes before them."""
    name = _MODEL_NAME.match(plain_name(call.model_name)) if call.messages.thoughts else None
    if name is None:
        return False
    since = _FAMILIES_THAT_BIND_SINCE.get(name["family"], _BINDING_SINCE)
    return (int(name["major"]), int(name["minor"] or 0)) >= since


def leave_changed_out(thinking: Mapping[str, Any]) -> dict[str, object]:
    """Returns how to think, with the request to leave out what was changed. What the route sets takes precedence."""
    return merged(_LEAVE_CHANGED_OUT, thinking)


def begins_with_thought(conversation: Conversation) -> bool:
    """Returns whether the last turn of the model begins with a thought."""
    turns = [turn for turn in conversation.turns if isinstance(turn, ModelTurn)]
    return bool(turns and turns[-1].thoughts and not turns[-1].thoughts[0].texts_before)


def in_order(turn: ModelTurn, *, with_thoughts: bool) -> Iterator[Text | PastCall | dict[str, object]]:
    """Yields the texts and calls of a turn, and between them its thoughts, as blocks."""
    thoughts = iter(turn.thoughts if with_thoughts else ())
    thought = next(thoughts, None)
    for place, text in enumerate(turn.texts):
        while thought is not None and thought.texts_before <= place:
            yield _block(thought.block)
            thought = next(thoughts, None)
        yield text
    for place, call in enumerate(turn.calls):
        while thought is not None and thought.calls_before <= place:
            yield _block(thought.block)
            thought = next(thoughts, None)
        yield call


def _block(thought: ThinkingBlock | RedactedBlock) -> dict[str, object]:
    if isinstance(thought, RedactedBlock):
        return {"type": "redacted_thinking", "data": thought.data}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}
