"""The kinds of provider: one package and one line each."""

from collections.abc import Mapping
from typing import Final

from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Provider, ProviderEnvironment, ProviderRoute
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.local.provider import LocalProvider
from services.router.providers.openai.provider import OpenAIProvider

KINDS: Final[Mapping[str, type[OpenAIProvider | AnthropicProvider | GeminiProvider]]] = {
    "openai": OpenAIProvider,
    "anthropic": AnthropicProvider,
    "gemini": GeminiProvider,
    "local": LocalProvider,
}


def open_provider(route: ProviderRoute, environment: ProviderEnvironment) -> Provider:
    return KINDS[route.kind](route, environment)
