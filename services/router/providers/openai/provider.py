"""A provider for any server compatible with OpenAI's chat completions."""

import hashlib
import re
import ssl
import string
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from services.chassis.http_client.origin import read_url
from services.router.providers.base import Piece, ProviderCall, ProviderEnvironment, ProviderRoute, Timeouts
from services.router.providers.http.exchange import ProviderHttpClient, ProviderRequest
from services.router.providers.openai.answer import SIGNS, CompletionAnswer
from services.router.providers.translation.conversion import BYTES_PER_ELEMENT, ConversionYielder, merged
from services.router.schema.messages import ABSENT, Messages, Part, PastToolCall, decode_string, encode_string

# Converts tool call ids for Mistral's models, which accept only nine letters and digits.
#
# The client has ids in our canonical form, or from another provider.

SHORT_CHARACTERS = 9

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CHARACTERS}}}")
_ALPHABET = string.ascii_letters + string.digits


async def shorten_call_ids(messages: Messages) -> Messages:
    """Returns the messages with shortened ids; the same if they have none. Other fields are unchanged."""
    yielder = ConversionYielder()
    changed = {}
    for index, message in enumerate(messages.parsed):
        if message.role == "tool" and message.tool_call_id is not None:
            changed[index] = msgspec.structs.replace(message, tool_call_id=short_id(message.tool_call_id))
        elif message.role == "assistant" and message.calls:
            changed[index] = msgspec.structs.replace(message, tool_calls=await _shortened(message.calls, yielder))
    return await messages.replace(changed, yielder)


async def _shortened(calls: Sequence[PastToolCall], yielder: ConversionYielder) -> list[PastToolCall]:
    shortened = []
    for call in calls:
        shortened.append(call if call.id is None else msgspec.structs.replace(call, id=short_id(call.id)))
        if yielder.is_due(BYTES_PER_ELEMENT):
            await yielder.pause()
    return shortened


def short_id(call_id: str) -> str:
    """Returns a short id, always the same for the same id."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(SHORT_CHARACTERS))


# Converts content for servers that accept only strings: DeepSeek rejects lists, Ollama splits them into messages.
#
# The client may send either form, and many frameworks prefer lists.

_EMPTY = encode_string("")


async def write_as_strings(messages: Messages) -> Messages:
    """Joins lists of parts into strings; returns the same messages if there are none. Other fields are unchanged."""
    yielder = ConversionYielder()
    changed = {}
    for index, message in enumerate(messages.parsed):
        if isinstance(message.content, list):
            changed[index] = msgspec.structs.replace(message, content=await _joined(message.content, yielder))
    return await messages.replace(changed, yielder)


async def _joined(parts: Sequence[Part], yielder: ConversionYielder) -> Raw:
    texts = [part.text for part in parts if part.text is not ABSENT]
    if len(texts) == 1:
        return texts[0]
    decoded = []
    for text in texts:
        decoded.append(decode_string(text))
        if yielder.is_due_after(text):
            await yielder.pause()
    return encode_string("".join(decoded)) if decoded else _EMPTY


# OpenAI's own field. Others support or ignore it.
_STORE_FALSE: Final = {"store": False}

# Hosts with other fields, and hosts with none, some of which reject unknown fields.
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "openrouter.ai": {"provider": {"zdr": True, "data_collection": "deny"}},
    "api.deepseek.com": {},
    "api.groq.com": {},
    "api.mistral.ai": {},
    "api.together.ai": {},
    "api.together.xyz": {},
}


def no_store_fields(base_url: str) -> dict[str, Any]:
    """Returns the fields to add to every request."""
    return _WAYS.get(urlsplit(base_url).hostname or "", _STORE_FALSE)


class OpenAIProvider:
    def __init__(
        self,
        base_url: str,
        timeouts: Timeouts,
        *,
        api_key: str = "",
        output_field: str = "max_tokens",
        extra_json: bytes = b"{}",
        short_call_ids: bool = False,
        string_content: bool = False,
        tls: ssl.SSLContext | None = None,
        socket: Path | None = None,
    ) -> None:
        """`tls` replaces the default trust store; `socket` is a unix socket to use instead of the host in the URL,
        without keep-alive."""
        origin, path = read_url(base_url, tls, socket)
        self._path = f"{path.rstrip('/')}/chat/completions"
        self._output_field = output_field
        self._extra_json = extra_json
        # What the route sets is not the client's to choose.
        self._set_by_route = frozenset(msgspec.json.decode(extra_json))
        self._short_call_ids = short_call_ids
        self._string_content = string_content
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._server = ProviderHttpClient(origin, timeouts, SIGNS, headers, keep=socket is None)

    @classmethod
    def from_route(cls, route: ProviderRoute, environment: ProviderEnvironment) -> "OpenAIProvider":
        extra = msgspec.json.decode(route.extra_json)
        if route.no_store:
            extra = merged(extra, no_store_fields(route.base_url))
        return cls(
            route.base_url,
            environment.timeouts,
            api_key=route.api_key,
            output_field=route.output_field,
            extra_json=msgspec.json.encode(extra),
            short_call_ids=route.short_call_ids,
            string_content=route.string_content,
        )

    async def warm(self) -> None:
        await self._server.warm()

    async def aclose(self) -> None:
        await self._server.aclose()

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        if not self._set_by_route.isdisjoint(call.parameters.fields):
            call.ignore(self._set_by_route)
            call.parameters = call.parameters.without(self._set_by_route)
        return self._server.send(
            ProviderRequest.of(call, self._path, partial(self._write_body, call)), CompletionAnswer()
        )

    async def _write_body(self, call: ProviderCall) -> bytes:
        if self._short_call_ids:
            call = replace(call, messages=await shorten_call_ids(call.messages))
        if self._string_content:
            call = replace(call, messages=await write_as_strings(call.messages))
        return encode_call(call, self._output_field, self._extra_json)


def encode_call(call: ProviderCall, output_field: str, extra_json: bytes) -> bytes:
    """Encodes the request body. The client's JSON is inserted byte for byte."""
    parts: list[bytes | memoryview | Raw] = [b'{"model":', msgspec.json.encode(call.model_name), b',"messages":']
    parts += call.messages.json_pieces
    parts += (b',"', output_field.encode(), b'":', str(call.max_tokens).encode())
    if call.tools.json:
        parts += (b',"tools":', call.tools.json)
        if call.tools.tool_choice_json:
            parts += (b',"tool_choice":', call.tools.tool_choice_json)
    for fields in (call.parameters.json, extra_json):
        inside = fields.strip()[1:-1].strip()
        if inside:
            parts += (b",", inside)
    if call.stream:
        parts.append(b',"stream":true,"stream_options":{"include_usage":true}')
    parts.append(b"}")
    return b"".join(parts)
