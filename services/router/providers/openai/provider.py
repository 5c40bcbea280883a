"""A provider for any server compatible with OpenAI's chat completions."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import msgspec

from services.router.providers.base import Piece, ProviderCall, ProviderEnvironment, ProviderRoute, Timeouts
from services.router.providers.http.exchange import ProviderHttpClient, ProviderRequest
from services.router.providers.http.origin import read_url
from services.router.providers.openai.answer import SIGNS, CompletionAnswer
from services.router.providers.openai.no_store import no_store_fields
from services.router.providers.openai.short_ids import shorten_call_ids
from services.router.providers.openai.string_content import write_as_strings
from services.router.providers.translation.extra import merged


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
        return self._answer_converted(call) if self._short_call_ids or self._string_content else self._send(call)

    async def _answer_converted(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        if self._short_call_ids:
            call = replace(call, messages=await shorten_call_ids(call.messages))
        if self._string_content:
            call = replace(call, messages=await write_as_strings(call.messages))
        async with aclosing(self._send(call)) as pieces:
            async for piece in pieces:
                yield piece

    def _send(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        body = encode_call(call, self._output_field, self._extra_json)
        question = ProviderRequest(self._path, body, call.stream, call.traceparent, call.on_sent, call.taker)
        return self._server.send(question, CompletionAnswer())


def encode_call(call: ProviderCall, output_field: str, extra_json: bytes) -> bytes:
    """Encodes the request body. The client's JSON is inserted byte for byte."""
    parts = [b'{"model":', msgspec.json.encode(call.model_name), b',"messages":', call.messages.json]
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
