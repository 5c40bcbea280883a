"""The thoughts of a model before it calls tools, as far as the next turn needs them, in each vendor's own terms."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct


class ReasoningText(Struct, frozen=True, array_like=True, tag="t", gc=False):
    """Readable reasoning, as DeepSeek, Moonshot and servers of open models have it."""

    text: str
    # The field that it came in: `reasoning_content` or `reasoning`.
    field: str


class ReasoningDetail(Struct, frozen=True, array_like=True, tag="d", gc=False):
    """One of OpenRouter's `reasoning_details`: a JSON object, to be sent back as it came."""

    object_json: str


class ThinkingBlock(Struct, frozen=True, array_like=True, tag="k", gc=False):
    """A block of Claude's thinking, which is valid only with its signature."""

    text: str
    signature: str
    # How many characters of the turn's text come before it.
    at: int = 0


class RedactedBlock(Struct, frozen=True, array_like=True, tag="r", gc=False):
    """A block of Claude's thinking that only its vendor can read."""

    data: str
    at: int = 0


class CallSignature(Struct, frozen=True, array_like=True, tag="s", gc=False):
    """Gemini's signature of one call."""

    signature: str
    # Whose `extra_content` has it on OpenAI's wire.
    vendor: str = "google"


class ResponsesReasoning(Struct, frozen=True, array_like=True, tag="i", gc=False):
    """One of the Responses API's items of reasoning: a JSON object, to be sent back as it came."""

    item_json: str
    # How many characters of the turn's text come before it.
    at: int = 0


Thought = ReasoningText | ReasoningDetail | ThinkingBlock | RedactedBlock | CallSignature | ResponsesReasoning


class Carried(Struct, frozen=True, array_like=True, gc=False):
    """The thoughts that one tool call, or one message, carries from a turn to the next."""

    # Whose thoughts they are. Others would refuse them.
    family: str
    # The vendor's own id of the call, if the client has another.
    call_id: str
    thoughts: Sequence[Thought]

    def __repr__(self) -> str:
        # Content is never printed.
        return "Carried(...)"


# Ends the part of a call's id that is as short as any other's. What it carries follows.
MARK: Final = "__lgt"
# The key of what belongs to a message rather than to one of its calls.
OF_MESSAGE: Final = -1
# By the message's index, and by that of its call.
Thoughts = Mapping[int, Mapping[int, Carried]]


def join_carried(carried: Sequence[Carried]) -> Carried | None:
    """Returns the thoughts of one message as one, without those of another model than the first; None if there are
    none."""
    if not carried:
        return None
    family = carried[0].family
    thoughts = [thought for each in carried if each.family == family for thought in each.thoughts]
    return Carried(family, "", thoughts) if thoughts else None


def characters_of(thoughts: Sequence[Thought]) -> int:
    return sum(_size(thought) for thought in thoughts)


def _size(thought: Thought) -> int:
    if isinstance(thought, ReasoningText):
        return len(thought.text)
    if isinstance(thought, ThinkingBlock):
        return len(thought.text) + len(thought.signature)
    if isinstance(thought, ReasoningDetail):
        return len(thought.object_json)
    if isinstance(thought, ResponsesReasoning):
        return len(thought.item_json)
    return len(thought.data if isinstance(thought, RedactedBlock) else thought.signature)
