"""OpenAI's chat completions as they come from a provider: of each message, what the router looks at.

Dialects differ: every field may be missing or null, and unknown ones are passed over.
"""

from typing import Any, Final

import msgspec

from services.router.providers.base import Call, Piece, ProviderError, ProviderUsage
from services.router.toolcalls import ToolCallFragment

DONE = b"[DONE]"

# No count can be larger: metering would refuse it, however often it came.
LARGEST_TOKENS: Final = 10**9

# A field that is not there, or is null.
_NOTHING: Final = (msgspec.Raw(), msgspec.Raw(b"null"))


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct, gc=False):
    text: str = ""


class _Message(msgspec.Struct, gc=False):
    """A whole message, or one delta of it."""

    content: str | list[_Part] | None = None
    # A refusal is the answer, under another name.
    refusal: str | None = None
    # Two names for the same: what the model thinks before it speaks.
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole completion."""

    choices: list[_Choice] | None = None
    # Read by itself: an answer that came whole is not broken by odd counts.
    usage: msgspec.Raw = msgspec.Raw()
    # Any value but null is an error, whatever the status was.
    error: msgspec.Raw = msgspec.Raw()


_completions = msgspec.json.Decoder(Completion)


def decode_completion(body: bytes) -> Completion:
    try:
        completion = _completions.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ProviderError("sent something that is not a chat completion") from None
    if completion.error not in _NOTHING:
        raise ProviderError("reported an error in place of an answer")
    return completion


def add_to_piece(piece: Piece, message: _Message) -> None:
    if message.content:
        if isinstance(message.content, str):
            piece.contents.append(message.content)
        else:
            piece.contents.extend(part.text for part in message.content if part.text)
    if message.refusal:
        piece.contents.append(message.refusal)
    hidden = message.reasoning_content or message.reasoning
    if hidden:
        piece.hidden += hidden
    for call in message.tool_calls or ():
        function = call.function or _Function()
        piece.tool_calls.append(ToolCallFragment(call.index, call.id, function.name, function.arguments))


def whole_piece(body: bytes) -> Piece:
    completion = decode_completion(body)
    message = completion.choices[0].message if completion.choices else None
    if completion.choices is None or message is None:
        raise ProviderError("sent an answer without a message")
    piece = Piece(last=True, usage=provider_usage(completion.usage))
    piece.finish_reason = completion.choices[0].finish_reason or "stop"
    add_to_piece(piece, message)
    return piece


def provider_usage(usage_json: msgspec.Raw) -> ProviderUsage | None:
    """None: it says nothing about its usage, here."""
    if usage_json in _NOTHING:
        return None
    try:
        usage = _as_object(msgspec.json.decode(usage_json))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    details = _as_object(usage.get("prompt_tokens_details"))
    return ProviderUsage(
        _as_count(usage.get("prompt_tokens")),
        _as_count(usage.get("completion_tokens")),
        _as_count(details.get("cached_tokens")),
    )


def _as_object(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def _as_count(said: Any) -> int | None:
    """A count that can be true, or None."""
    # Exactly: true is an integer too, to Python.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None


def encode_call(call: Call, output_field: str, extra_json: bytes) -> bytes:
    """The request's body. What the client sent is put in as it is, byte for byte."""
    parts = [b'{"model":', msgspec.json.encode(call.model_name), b',"messages":', call.messages_json]
    parts += (b',"', output_field.encode(), b'":', str(call.max_tokens).encode())
    if call.tools_json:
        parts += (b',"tools":', call.tools_json)
        if call.tool_choice_json:
            parts += (b',"tool_choice":', call.tool_choice_json)
    for fields in (call.parameters_json, extra_json):
        inside = fields.strip()[1:-1].strip()
        if inside:
            parts += (b",", inside)
    if call.stream:
        parts.append(b',"stream":true,"stream_options":{"include_usage":true}')
    parts.append(b"}")
    return b"".join(parts)
