"""Hosts whose chat completions are known to differ: what they take, and what a request needs there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Host:
    # The name of the field for the output limit.
    output_field: str = "max_tokens"
    # The header of an API key, if it is not that of a Bearer token.
    key_header: str = ""
    # Whether answers without an output limit are as long as the model and its window allow. Others are known to end
    # them after some thousand tokens, or not known at all.
    needs_no_limit: bool = False
    # Whether it takes OpenAI's `prompt_cache_key`; others reject it.
    takes_cache_key: bool = False
    # Whether it takes OpenRouter's `reasoning`.
    takes_reasoning: bool = False
    # Whether it takes what the servers of open models have, such as `top_k`.
    takes_open_parameters: bool = False
    # Whether it takes a `tool_choice` among some of the tools.
    takes_allowed_tools: bool = False
    # Whether it has custom tools.
    takes_custom_tools: bool = False
    # Whether it takes fields that ask it not to store a request.
    takes_no_store: bool = False
    # Those fields, and headers in their place or beside them.
    no_store_fields: Mapping[str, object] = field(default_factory=lambda: {"store": False})
    no_store_headers: Mapping[str, str] = field(default_factory=dict)
    # The field in which past messages have reasoning. None: that in which it came; empty: there is none.
    reasoning_field: str | None = None
    # Whether it takes `reasoning_details` that others gave the client.
    takes_reasoning_details: bool = False
    # Whether its answers cite, by their numbers, pages that it lists.
    numbers_sources: bool = False
    # Whether it refuses messages with calls that have no reasoning.
    needs_reasoning: bool = False
    # Whether it refuses calls of Gemini's models from 3 on without their signatures.
    needs_signatures: bool = False
    # Which of OpenAI's APIs it has; auto: both.
    api: str = "chat"


# `max_tokens` is refused by the models of OpenAI from GPT-5 on.
_AZURE: Final = Host(
    "max_completion_tokens",
    key_header="api-key",
    needs_no_limit=True,
    takes_allowed_tools=True,
    takes_custom_tools=True,
    takes_no_store=True,
    reasoning_field="",
    api="auto",
)
_OPENAI: Final = Host(
    "max_completion_tokens",
    needs_no_limit=True,
    takes_cache_key=True,
    takes_allowed_tools=True,
    takes_custom_tools=True,
    takes_no_store=True,
    reasoning_field="",
    api="auto",
)
_TAKES_NOTHING: Final = Host(no_store_fields={}, reasoning_field="reasoning")
_TOGETHER: Final = Host(no_store_fields={}, takes_open_parameters=True, reasoning_field="reasoning")
_MOONSHOT: Final = Host(reasoning_field="reasoning_content", needs_reasoning=True)
_OTHER: Final = Host()

HOSTS: Final = {
    "api.openai.com": _OPENAI,
    "openrouter.ai": Host(
        takes_cache_key=True,
        takes_reasoning=True,
        takes_open_parameters=True,
        takes_no_store=True,
        no_store_fields={"provider": {"zdr": True, "data_collection": "deny"}},
        reasoning_field="reasoning",
        takes_reasoning_details=True,
    ),
    "ai-gateway.vercel.sh": Host(
        takes_no_store=True, no_store_fields={"providerOptions": {"gateway": {"zeroDataRetention": True}}}
    ),
    "gateway.ai.cloudflare.com": Host(takes_no_store=True, no_store_headers={"cf-aig-collect-log-payload": "false"}),
    "api.mistral.ai": Host(takes_cache_key=True, no_store_fields={}, reasoning_field=""),
    # Some reject unknown fields.
    "api.cerebras.ai": _TAKES_NOTHING,
    "api.deepseek.com": Host(no_store_fields={}, reasoning_field="reasoning_content", needs_reasoning=True),
    "api.groq.com": _TAKES_NOTHING,
    "api.together.ai": _TOGETHER,
    "api.together.xyz": _TOGETHER,
    "api.moonshot.ai": _MOONSHOT,
    "api.moonshot.cn": _MOONSHOT,
    "api.perplexity.ai": Host(no_store_fields={}, reasoning_field="", numbers_sources=True),
    "generativelanguage.googleapis.com": Host(no_store_fields={}, reasoning_field="", needs_signatures=True),
}
# Hosts of one region or one customer.
_ENDINGS: Final = {
    ".api.openai.com": _OPENAI,
    ".openai.azure.com": _AZURE,
    ".cognitiveservices.azure.com": _AZURE,
    ".services.ai.azure.com": _AZURE,
}


def host_of(base_url: str) -> Host:
    name = urlsplit(base_url).hostname or ""
    by_ending = (host for ending, host in _ENDINGS.items() if name.endswith(ending))
    return HOSTS.get(name) or next(by_ending, _OTHER)
