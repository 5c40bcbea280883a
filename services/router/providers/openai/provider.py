"""A provider for any server compatible with OpenAI's chat completions."""

import hmac
import re
import ssl
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from msgspec import Raw

from services.router.providers.answer import ProviderAnswer
from services.router.providers.base import Piece, ProviderCall, ProviderRoute, Timeouts
from services.router.providers.errors.lessons import OPENAI, Lesson
from services.router.providers.http.http_provider import HttpProvider
from services.router.providers.openai.answer import CompletionAnswer
from services.router.providers.openai.custom_tools import write_calls, write_tools
from services.router.providers.openai.known_hosts import host_of
from services.router.providers.openai.message_dialects import shorten_call_ids, write_as_strings
from services.router.providers.openai.numbered_answer import NumberedAnswer
from services.router.providers.openai.parameters import adapt
from services.router.providers.openai.past_reasoning import fill_reasoning, fill_signatures, write_thoughts
from services.router.providers.translation.conversion import merged
from services.router.providers.translation.google_signatures import needs_signatures
from services.router.reasoning.restoring import NOTHING, TakenBack
from services.router.schema.messages import Messages
from services.router.schema.parameters import OPEN_MODELS, Parameters
from services.router.schema.thoughts import CallSignature, ReasoningDetail, ReasoningText, Thought

CACHE_KEY_CHARACTERS: Final = 32
# An access token, in place of an API key.
_TOKEN: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


class OpenAIProvider(HttpProvider):
    kind = "openai"
    answer_type: ClassVar[type[ProviderAnswer]] = CompletionAnswer
    lessons: ClassVar[Sequence[Lesson]] = OPENAI
    flags: ClassVar[tuple[str, ...]] = (
        *("no_store", "short_call_ids", "string_content", "prompt_cache_key", "always_max_tokens"),
        *("open_parameters", "allowed_tools", "custom_tools", "reasoning_back", "reasoning_needed"),
    )

    def __init__(
        self,
        route: ProviderRoute,
        timeouts: Timeouts,
        *,
        tls: ssl.SSLContext | None = None,
        socket: Path | None = None,
    ) -> None:
        host = host_of(route.base_url)
        self._key_header = host.key_header
        self._takes_reasoning = host.takes_reasoning
        super().__init__(route, timeouts, host.no_store_headers if route.no_store else {}, tls=tls, socket=socket)
        self._route = route
        self._reasoning_field = host.reasoning_field
        self._numbers_sources = host.numbers_sources
        self._takes_details = host.takes_reasoning_details
        self._needs_signatures = host.needs_signatures
        if route.no_store:
            self._extra = merged(self._extra, dict(host.no_store_fields))
        self._extra_json = msgspec.json.encode(self._extra)
        self._sends_cache_key = route.prompt_cache_key and "prompt_cache_key" not in self._extra

    def _adapted(self, call: ProviderCall, parameters: Parameters) -> Parameters:
        if not self._route.open_parameters and not OPEN_MODELS.isdisjoint(parameters.fields):
            call.ignore(sorted(OPEN_MODELS))
            parameters = parameters.without(OPEN_MODELS)
        return adapt(call, parameters, takes_reasoning=self._takes_reasoning)

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        # What the route sets is not the client's to choose.
        if not self._extra.keys().isdisjoint(call.parameters.fields):
            call.leave_out(self._extra)
        return super().answer(call)

    def _key_headers(self, api_key: str) -> dict[str, str]:
        if not api_key:
            return {}
        if self._key_header and not _TOKEN.fullmatch(api_key):
            return {self._key_header: api_key}
        return {"Authorization": f"Bearer {api_key}"}

    def _answer_type(self, call: ProviderCall) -> type[ProviderAnswer]:
        return NumberedAnswer if self._numbers_sources else CompletionAnswer

    def _path(self, call: ProviderCall) -> str:
        return f"{self._base_path}/chat/completions"

    def takes_back(self, model_name: str) -> TakenBack:
        name = model_name.rpartition("/")[2].partition(":")[0].lower()
        if not self._route.reasoning_back:
            return NOTHING
        kinds: tuple[type[Thought], ...] = (ReasoningText, ReasoningDetail, CallSignature)
        clients_kinds = kinds if self._takes_details else (ReasoningText, CallSignature)
        if self._reasoning_field == "":
            kinds = clients_kinds = (CallSignature,)
        return TakenBack(f"openai {name}", f"openai {self._route.name} {name}", kinds, clients_kinds)

    def _write_body(self, call: ProviderCall) -> bytes:
        if call.messages.thoughts or self._route.reasoning_needed or self._needs_signatures:
            call = replace(call, messages=self._with_thoughts(call))
        if self._route.short_call_ids:
            call = replace(call, messages=shorten_call_ids(call.messages))
        if call.tools.json and not self._route.allowed_tools:
            call = replace(call, tools=call.tools.without_others())
        if call.tools.custom and self._takes_custom_tools(call):
            messages = write_calls(call.messages, call.tools.custom)
            call = replace(call, tools=write_tools(call.tools), messages=messages)
        if self._route.string_content:
            call = replace(call, messages=write_as_strings(call.messages))
        output_field = call.takes.output_field or self._route.output_field
        return encode_call(call, output_field, self._extra_json, self._cache_key(call))

    def _takes_custom_tools(self, call: ProviderCall) -> bool:
        return self._route.custom_tools and call.takes.custom_tools

    def _with_thoughts(self, call: ProviderCall) -> Messages:
        messages = write_thoughts(call.messages, self._reasoning_field)
        if self._route.reasoning_needed:
            messages = fill_reasoning(messages)
        if self._needs_signatures and needs_signatures(call.model_name):
            messages = fill_signatures(messages)
        return messages

    def _cache_key(self, call: ProviderCall) -> str:
        """Returns the key by which the provider finds the server that has the beginning of this prompt in its cache.
        It is derived with a secret that all routers have, so it tells nothing but which requests belong together.
        While a key is rotated, routers may differ for some seconds, which costs hits in the cache. Tokens change every
        hour, so in their place it is derived with the name of whose they are."""
        if not self._sends_cache_key or not call.cache_identity:
            return ""
        credentials = self._route.credentials
        secret = self._api_key if credentials is None else credentials.identity
        return hmac.digest(secret.encode(), call.cache_identity, "sha256").hex()[:CACHE_KEY_CHARACTERS]


def encode_call(call: ProviderCall, output_field: str, extra_json: bytes, cache_key: str = "") -> bytes:
    """Encodes the request body. The client's JSON is inserted byte for byte."""
    parts: list[bytes | memoryview | Raw] = [b'{"model":', msgspec.json.encode(call.model_name), b',"messages":']
    parts += call.messages.json_pieces
    if call.is_limit_told:
        parts += (b',"', output_field.encode(), b'":', str(call.max_tokens).encode())
    if call.tools.json:
        parts += (b',"tools":', call.tools.json)
        if call.tools.tool_choice_json:
            parts += (b',"tool_choice":', call.tools.tool_choice_json)
    for fields in (call.parameters.json, extra_json):
        inside = fields.strip()[1:-1].strip()
        if inside:
            parts += (b",", inside)
    if cache_key:
        parts.append(b',"prompt_cache_key":"%b"' % cache_key.encode())
    if call.stream:
        parts.append(b',"stream":true,"stream_options":{"include_usage":true}')
    parts.append(b"}")
    return b"".join(parts)
