"""The kinds of provider: one file and one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.router.providers.base import Provider, ProviderRoute, Surroundings
from services.router.providers.local import LocalProvider
from services.router.providers.openai import OpenAIProvider


@dataclass(frozen=True, slots=True)
class Kind:
    open: Callable[[ProviderRoute, Surroundings], Provider]
    # Whether it is somewhere else: then the routes file must say where.
    needs_address: bool


KINDS: Mapping[str, Kind] = {
    "openai": Kind(OpenAIProvider.from_route, needs_address=True),
    "local": Kind(LocalProvider.from_route, needs_address=False),
}


def open_providers(routes: Mapping[str, ProviderRoute], surroundings: Surroundings) -> dict[str, Provider]:
    return {name: KINDS[route.kind].open(route, surroundings) for name, route in routes.items()}
