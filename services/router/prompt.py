"""The conversation as it goes upstream: the character first, then the client's messages as they came."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.router import tokens
from services.router.character import Character

# What a chat template puts around a message and before the answer, roughly.
TOKENS_PER_MESSAGE = 4
TOKENS_BEFORE_ANSWER = 3


class _Part(msgspec.Struct, gc=False):
    text: str = ""


class _Function(msgspec.Struct, gc=False):
    name: str = ""
    arguments: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct, gc=False):
    """Of a message, what is counted."""

    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_ToolCall] | None = None


_messages = msgspec.json.Decoder(list[_Message])
_messages_of_raw_fields = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


@dataclass(frozen=True, slots=True, repr=False)
class Prompt:
    messages_json: bytes
    tokens: int


async def compose_prompt(messages_json: bytes, tools_json: bytes, character: Character) -> Prompt:
    try:
        messages = _messages.decode(messages_json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LegatoError(Reason.REQUEST_INVALID, "The messages could not be read.", param="messages") from None
    if not messages:
        raise LegatoError(Reason.REQUEST_INVALID, "There must be at least one message.", param="messages")
    prompt_tokens = await tokens.count_all(_texts(messages, tools_json, character))
    prompt_tokens += TOKENS_PER_MESSAGE * (1 + len(messages)) + TOKENS_BEFORE_ANSWER
    if any(message.role == "developer" for message in messages):
        messages_json = _call_developers_system(messages_json)
    first = messages_json.index(b"[") + 1
    return Prompt(b"[" + character.message_json + b"," + messages_json[first:], prompt_tokens)


def _texts(messages: list[_Message], tools_json: bytes, character: Character) -> Iterator[str]:
    yield character.text
    yield tools_json.decode(errors="replace")
    for message in messages:
        if isinstance(message.content, str):
            yield message.content
        elif message.content is not None:
            for part in message.content:
                yield part.text
        if message.name:
            yield message.name
        for call in message.tool_calls or ():
            yield call.function.name
            yield call.function.arguments


def _call_developers_system(messages_json: bytes) -> bytes:
    """Providers know the role `system`; not all of them know `developer`. All other fields stay as they are."""
    messages = _messages_of_raw_fields.decode(messages_json)
    for message in messages:
        if msgspec.json.decode(message["role"]) == "developer":
            message["role"] = msgspec.Raw(b'"system"')
    return msgspec.json.encode(messages)
