"""The kinds of provider: one package and one line each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Provider, ProviderRoute, Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.local.provider import LocalProvider
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.responses.provider import ResponsesProvider

KINDS: Final[Mapping[str, type[OpenAIProvider | AnthropicProvider | GeminiProvider]]] = {
    "openai": OpenAIProvider,
    "responses": ResponsesProvider,
    "anthropic": AnthropicProvider,
    "gemini": GeminiProvider,
    "local": LocalProvider,
}


def open_provider(route: ProviderRoute, timeouts: Timeouts, local_model_socket: Path) -> Provider:
    if route.kind == "local":
        return LocalProvider(route, timeouts, local_model_socket)
    if route.api != "chat":
        return ResponsesProvider(route, timeouts)
    return KINDS[route.kind](route, timeouts)
