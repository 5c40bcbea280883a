"""Writes what a model thought in earlier turns into its messages, in the fields of its server.

DeepSeek and Moonshot refuse a message with calls that has no reasoning; newer models also refuse an empty one, so a
blank stands for what nobody has kept. Google refuses a call of Gemini 3 without its signature, and has a placeholder.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.router.providers.translation.google_signatures import NO_SIGNATURE
from services.router.schema.messages import ABSENT, Message, Messages, PastToolCall, encode_string
from services.router.schema.thoughts import CallSignature, Carried, ReasoningDetail, ReasoningText

# Accepted by all that refuse a message without reasoning, some of which refuse an empty text.
NO_REASONING: Final = encode_string(" ")


def write_thoughts(messages: Messages, reasoning_field: str | None) -> Messages:
    """Returns the messages with their thoughts; the same if they have none. `reasoning_field` has the texts: None if
    each is in the field that it came in."""
    return messages.replace(
        {
            index: _with_thoughts(messages.parsed[index], by_call, reasoning_field)
            for index, by_call in messages.thoughts.items()
        }
    )


def _with_thoughts(message: Message, by_call: Mapping[int, Carried], reasoning_field: str | None) -> Message:
    details: list[Raw] = []
    texts: dict[str, str] = {}
    calls = list(message.calls)
    for place, carried in sorted(by_call.items()):
        for thought in carried.thoughts:
            if isinstance(thought, ReasoningDetail):
                details.append(Raw(thought.object_json.encode()))
            elif isinstance(thought, ReasoningText):
                field = reasoning_field or thought.field
                texts[field] = texts.get(field, "") + thought.text
            elif isinstance(thought, CallSignature) and 0 <= place < len(calls):
                calls[place] = _signed(calls[place], thought)
    fields: dict[str, Any] = {name: encode_string(text) for name, text in texts.items()}
    if details:
        # What says the same beside them may contradict them.
        fields = {"reasoning_details": Raw(msgspec.json.encode(details))}
    return msgspec.structs.replace(message, tool_calls=calls or message.tool_calls, **fields)


def _signed(call: PastToolCall, signature: CallSignature) -> PastToolCall:
    extra = {signature.vendor: {"thought_signature": signature.signature}}
    return msgspec.structs.replace(call, extra_content=Raw(msgspec.json.encode(extra)))


def fill_reasoning(messages: Messages) -> Messages:
    """Returns messages all of whose answers have reasoning, if any of them has calls."""
    if not any(message.calls for message in messages.parsed):
        return messages
    lacking = {
        index: msgspec.structs.replace(message, reasoning_content=NO_REASONING)
        for index, message in enumerate(messages.parsed)
        if message.role == "assistant" and message.reasoning_content is ABSENT and message.reasoning is ABSENT
    }
    return messages.replace(lacking)


def fill_signatures(messages: Messages) -> Messages:
    """Returns messages in which the first of the calls that were made together is signed."""
    lacking = {
        index: msgspec.structs.replace(message, tool_calls=_first_signed(message.calls))
        for index, message in enumerate(messages.parsed)
        if message.calls and message.calls[0].extra_content is ABSENT
    }
    return messages.replace(lacking)


def _first_signed(calls: Sequence[PastToolCall]) -> list[PastToolCall]:
    return [_signed(calls[0], CallSignature(NO_SIGNATURE)), *calls[1:]]
