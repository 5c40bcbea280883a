"""The conversation as it goes upstream: the character first, then the client's messages as they came."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.yielding import Yielder
from services.router.prompts import tokens
from services.router.prompts.character import Character
from services.router.prompts.json_text import is_list, text_slices
from services.router.prompts.message_fields import with_known_fields

# What a chat template puts around a message and before the answer, roughly.
TOKENS_PER_MESSAGE = 4
TOKENS_BEFORE_ANSWER = 3

# A parameter that is longer than this is no number of a setting.
LONGEST_NUMBER_BYTES = 32

# To find the places of the texts in this much JSON takes a fraction of a millisecond.
SLICE_BYTES = 256 * 1024


# What stands in a message beside the values of its fields, if it is written with a space after each colon and comma.
PLAIN_BYTES = len('{"role": "", "content": }') + len(", ")
NAME_BYTES = len(', "name": ""')
CALL_ID_BYTES = len(', "tool_call_id": ""')

_NULL = msgspec.Raw(b"null")
_QUOTE = ord('"')


class _Part(msgspec.Struct, gc=False):
    text: msgspec.Raw = msgspec.Raw(b'""')
    cache_control: msgspec.Raw = _NULL


class _Function(msgspec.Struct, gc=False):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _ToolCall(msgspec.Struct, gc=False):
    id: str = ""
    extra_content: msgspec.Raw = _NULL
    function: _Function = msgspec.field(default_factory=_Function)


class _PlainMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """As most are: nothing in it has to be looked at twice."""

    role: str
    content: msgspec.Raw = _NULL
    name: str = ""
    tool_call_id: str = ""


class _Message(msgspec.Struct, gc=False):
    """Any other: all that goes upstream of it (see `echoes.py`), and is counted."""

    role: str
    content: msgspec.Raw = _NULL
    # What the model said in place of an answer.
    refusal: msgspec.Raw = _NULL
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    reasoning_content: msgspec.Raw = _NULL
    reasoning: msgspec.Raw = _NULL
    prefix: msgspec.Raw = _NULL
    partial: msgspec.Raw = _NULL


# Lists are read one by one and texts slice by slice, because a prompt may have a hundred thousand messages, or one of
# some megabytes: others have their turn in between.
_list = msgspec.json.Decoder(list[msgspec.Raw])
_plain_message = msgspec.json.Decoder(_PlainMessage)
_message = msgspec.json.Decoder(_Message)
_part = msgspec.json.Decoder(_Part)
_tool_call = msgspec.json.Decoder(_ToolCall)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True, repr=False)
class Prompt:
    messages_json: bytes
    tokens: int
    # Functions of our own, for models that can call any, on the path where the client has none. Empty: none.
    offered_tools_json: bytes = b""
    offered_tool_choice_json: bytes = b""


async def compose_prompt(
    messages_json: bytes,
    tools_json: bytes,
    character: Character,
    *,
    tool_choice_json: bytes = b"",
    parameters_json: bytes = b"",
) -> Prompt:
    """All that goes upstream is counted, wherever the client has put it."""
    counted = tokens.PatientCount()
    for given_json in (tools_json, tool_choice_json, *_texts_among(parameters_json)):
        for piece in tokens.slices_of(given_json.decode(errors="replace")) if given_json else ():
            if counted.add(piece):
                await counted.pause()
    try:
        messages = await _read(messages_json, counted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise LegatoError(Reason.REQUEST_INVALID, "The messages could not be read.", param="messages") from None
    if not messages.raw:
        raise LegatoError(Reason.REQUEST_INVALID, "There must be at least one message.", param="messages")
    if messages.were_rewritten:
        messages_json = b"[" + b",".join(messages.raw) + b"]"
    first = messages_json.index(b"[") + 1
    prompt_tokens = tokens.count_once(character.text) + counted.tokens
    prompt_tokens += TOKENS_PER_MESSAGE * (1 + len(messages.raw)) + TOKENS_BEFORE_ANSWER
    return Prompt(b"[" + character.message_json + b"," + messages_json[first:], prompt_tokens)


def insert_guidance(prompt: Prompt, text: str) -> Prompt:
    """As a system message behind those that the conversation begins with: what stands before it stays as it was."""
    raw_messages = _list.decode(prompt.messages_json)
    roles = (_message.decode(raw_message).role for raw_message in raw_messages)
    at = next((index for index, role in enumerate(roles) if role != "system"), len(raw_messages))
    raw_messages.insert(at, msgspec.Raw(msgspec.json.encode({"role": "system", "content": text})))
    return replace(
        prompt,
        messages_json=b"[" + b",".join(raw_messages) + b"]",
        tokens=prompt.tokens + TOKENS_PER_MESSAGE + tokens.count(text),
    )


class _Messages(NamedTuple):
    raw: list[msgspec.Raw]
    were_rewritten: bool


async def _read(messages_json: bytes, counted: tokens.PatientCount) -> _Messages:
    yielder = Yielder(SLICE_BYTES)
    raw_messages = _list.decode(messages_json)
    if yielder.is_due(len(messages_json)):
        await yielder.pause()
    were_rewritten = False
    for index, raw_message in enumerate(raw_messages):
        told = raw_message
        message: _PlainMessage | _Message | None = _read_plain(raw_message)
        if message is None:
            told = await with_known_fields(raw_message, yielder)
            message = _message.decode(told)
        if yielder.is_due(len(memoryview(raw_message))):
            await yielder.pause()
        for piece in _texts(message):
            if counted.add(piece):
                await counted.pause()
        if message.role == "developer":
            told = _called_system(told)
        if told is not raw_message:
            raw_messages[index] = told
            were_rewritten = True
    return _Messages(raw_messages, were_rewritten)


def _read_plain(raw_message: msgspec.Raw) -> _PlainMessage | None:
    """None: it has parts, fields that are not known, or one of them twice (see `echoes.py`)."""
    try:
        message = _plain_message.decode(raw_message)
    except msgspec.ValidationError:
        return None
    if is_list(message.content):
        return None
    # Written out, because most prompts consist of such messages.
    known_bytes = PLAIN_BYTES + len(message.role) + len(memoryview(message.content))
    if message.name:
        known_bytes += NAME_BYTES + len(message.name)
    if message.tool_call_id:
        known_bytes += CALL_ID_BYTES + len(message.tool_call_id)
    return message if len(memoryview(raw_message)) <= known_bytes else None


def _texts_among(parameters_json: bytes) -> list[bytes]:
    """Formats and stops, which a model may be shown, and whatever else is longer than a number."""
    if not parameters_json:
        return []
    try:
        values = _raw_fields.decode(parameters_json).values()
    except (msgspec.DecodeError, RecursionError):
        raise LegatoError(Reason.REQUEST_INVALID, "The parameters could not be read.") from None
    return [given for value in values if (given := bytes(value))[0] in b'"[{' or len(given) > LONGEST_NUMBER_BYTES]


def _texts(message: _PlainMessage | _Message) -> Iterator[str]:
    """In slices."""
    # Even where it is empty: reading a message is work.
    yield from tokens.slices_of(message.name or "")
    if message.tool_call_id:
        yield from tokens.slices_of(message.tool_call_id)
    if is_list(message.content):
        for raw_part in _list.decode(message.content):
            part = _part.decode(raw_part)
            yield from _text(part.text)
            yield from _any_text(part.cache_control)
    elif message.content != _NULL:
        yield from _text(message.content)
    if isinstance(message, _PlainMessage):
        return
    if message.refusal != _NULL:
        yield from _text(message.refusal)
    for given in (message.reasoning_content, message.reasoning, message.prefix, message.partial):
        yield from _any_text(given)
    for raw_call in message.tool_calls or ():
        call = _tool_call.decode(raw_call)
        yield from tokens.slices_of(call.id)
        yield from tokens.slices_of(call.function.name)
        yield from _text(call.function.arguments)
        yield from _any_text(call.extra_content)


def _text(string_json: msgspec.Raw) -> Iterator[str]:
    if memoryview(string_json)[0] != _QUOTE:
        raise msgspec.ValidationError("Expected a string")
    return text_slices(string_json)


def _any_text(given: msgspec.Raw) -> Iterator[str]:
    """What is no string is counted as the JSON it is."""
    if given == _NULL:
        return iter(())
    if memoryview(given)[0] == _QUOTE:
        return text_slices(given)
    return tokens.slices_of(bytes(given).decode(errors="replace"))


def _called_system(raw_message: msgspec.Raw) -> msgspec.Raw:
    """Providers know the role `system`; not all of them know `developer`. All other fields stay as they are."""
    fields = _raw_fields.decode(raw_message)
    fields["role"] = msgspec.Raw(b'"system"')
    return msgspec.Raw(msgspec.json.encode(fields))
