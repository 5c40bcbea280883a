"""The kinds of provider: one package and one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.router.providers.anthropic import provider as anthropic
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Provider, ProviderEnvironment, ProviderRoute
from services.router.providers.gemini import provider as gemini
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.local.provider import LocalProvider
from services.router.providers.openai.provider import OpenAIProvider


@dataclass(frozen=True, slots=True)
class ProviderKind:
    open: Callable[[ProviderRoute, ProviderEnvironment], Provider]
    # Whether it is remote: then the routes file must have its address.
    needs_address: bool
    # API versions, if there are several: the routes file must then name one, and a key.
    versions: tuple[str, ...] = ()


KINDS: Mapping[str, ProviderKind] = {
    "openai": ProviderKind(OpenAIProvider, needs_address=True),
    "anthropic": ProviderKind(AnthropicProvider, needs_address=True, versions=anthropic.VERSIONS),
    "gemini": ProviderKind(GeminiProvider, needs_address=True, versions=gemini.VERSIONS),
    "local": ProviderKind(LocalProvider, needs_address=False),
}


def open_provider(route: ProviderRoute, environment: ProviderEnvironment) -> Provider:
    return KINDS[route.kind].open(route, environment)
