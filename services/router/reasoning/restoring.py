"""Gives a model back what it thought in earlier turns, as far as it is its own, and counts it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from services.router.prompts import tokens
from services.router.reasoning.set_aside import CLIENTS_OWN
from services.router.schema.messages import Messages
from services.router.schema.thoughts import (
    CallSignature,
    Carried,
    ReasoningDetail,
    ReasoningText,
    ResponsesReasoning,
    ThinkingBlock,
    Thought,
    Thoughts,
)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The thoughts that a model takes back."""

    # What models are called that understand each other's thoughts.
    family: str
    # The same at one provider, where others cannot read them.
    own_family: str
    # In which of the vendors' terms.
    kinds: tuple[type[Thought], ...]
    # And of what the client has itself, or from elsewhere.
    clients_kinds: tuple[type[Thought], ...] = ()

    def family_of(self, thoughts: Iterable[Thought]) -> str:
        """Returns which models may be given such thoughts."""
        is_bound = any(
            isinstance(thought, ReasoningDetail | CallSignature | ResponsesReasoning) for thought in thoughts
        )
        return self.own_family if is_bound else self.family


NOTHING: Final = TakenBack("", "", ())


class _Readable(msgspec.Struct, gc=False):
    text: str | None = None
    summary: str | None = None


_readable = msgspec.json.Decoder(_Readable)


async def restore(messages: Messages, taken: TakenBack) -> tuple[Messages, int]:
    """Returns the messages with the thoughts that a model takes back, and how many tokens these have."""
    thoughts = {
        index: kept
        for index, by_call in messages.thoughts.items()
        if (kept := {place: own for place, carried in by_call.items() if (own := _own(carried, taken)) is not None})
    }
    counted = await tokens.count_slices(_slices(messages, thoughts))
    return replace(messages, thoughts=thoughts), counted


def _own(carried: Carried, taken: TakenBack) -> Carried | None:
    if carried.family not in (taken.family, taken.own_family, CLIENTS_OWN):
        return None
    kinds = taken.clients_kinds if carried.family == CLIENTS_OWN else taken.kinds
    kept = [thought for thought in carried.thoughts if isinstance(thought, kinds)]
    return Carried(carried.family, carried.call_id, kept) if kept else None


def _slices(messages: Messages, thoughts: Thoughts) -> Iterator[str]:
    """Yields the texts of the present loop of calls. Models read no others, and vendors count no others."""
    roles = (index for index in range(len(messages.parsed) - 1, -1, -1) if messages.parsed[index].role == "user")
    begin = next(roles, 0)
    for index, by_call in thoughts.items():
        if index > begin:
            for carried in by_call.values():
                for text in _texts_of(carried.thoughts):
                    yield from tokens.slices_of(text)


def _texts_of(thoughts: Iterable[Thought]) -> Iterator[str]:
    for thought in thoughts:
        if isinstance(thought, ReasoningText | ThinkingBlock):
            yield thought.text
        elif isinstance(thought, ReasoningDetail):
            yield _text_of(thought)


def _text_of(detail: ReasoningDetail) -> str:
    try:
        readable = _readable.decode(detail.object_json)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return readable.text or readable.summary or ""
