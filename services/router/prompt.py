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


# One by one, because a prompt may have a hundred thousand messages: others have their turn in between.
_messages = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, repr=False)
class Prompt:
    messages_json: bytes
    tokens: int


async def compose_prompt(messages_json: bytes, tools_json: bytes, character: Character) -> Prompt:
    counted = tokens.PatientCount()
    await counted.add(character.text)
    await counted.add(tools_json.decode(errors="replace"))
    try:
        raw_messages = _messages.decode(messages_json)
        developer_was_renamed = False
        for index, raw_message in enumerate(raw_messages):
            message = _message.decode(raw_message)
            for text in _texts(message):
                await counted.add(text)
            if message.role == "developer":
                raw_messages[index] = _called_system(raw_message)
                developer_was_renamed = True
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LegatoError(Reason.REQUEST_INVALID, "The messages could not be read.", param="messages") from None
    if not raw_messages:
        raise LegatoError(Reason.REQUEST_INVALID, "There must be at least one message.", param="messages")
    if developer_was_renamed:
        messages_json = b"[" + b",".join(raw_messages) + b"]"
    first = messages_json.index(b"[") + 1
    prompt_tokens = counted.tokens + TOKENS_PER_MESSAGE * (1 + len(raw_messages)) + TOKENS_BEFORE_ANSWER
    return Prompt(b"[" + character.message_json + b"," + messages_json[first:], prompt_tokens)


def _texts(message: _Message) -> Iterator[str]:
    # Even where it is empty: reading a message is work.
    yield message.name or ""
    if isinstance(message.content, str):
        yield message.content
    elif message.content is not None:
        for part in message.content:
            yield part.text
    for call in message.tool_calls or ():
        yield call.function.name
        yield call.function.arguments


def _called_system(raw_message: msgspec.Raw) -> msgspec.Raw:
    """Providers know the role `system`; not all of them know `developer`. All other fields stay as they are."""
    fields = _raw_fields.decode(raw_message)
    fields["role"] = msgspec.Raw(b'"system"')
    return msgspec.Raw(msgspec.json.encode(fields))
