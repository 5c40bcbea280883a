"""A model that may serve a class, as the routes file describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from msgspec import Meta

from services.router.prompts.answer_prefix import PrefixStyle
from services.router.providers.abilities import Abilities
from services.router.providers.ability_table import abilities_of
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.providers.known_prefixes import known_style
from services.router.routes import file as kinds
from services.router.routes.abilities import read_abilities
from services.router.routes.file import Table
from services.router.routes.provider import read_address

DEFAULT_TIMEOUTS: Final = Timeouts()
# The longest queue at a model's server, unless the file names another.
MOST_WAITING: Final = 8

# Timeouts that a model may override; the connect timeout belongs to the provider.
_TIMEOUTS: Final = ("first_byte_s", "idle_s", "whole_s", "total_s")

# Keys of earlier releases, with what they were for.
_REMOVED: Final = {
    "queueing_s": "latency limits no model (see concurrency)",
}

_CONTINUES: Final = Annotated[
    bool | Literal["prefix", "repeated_prefix", "partial", "continue_final_message"],
    Meta(description="must be true, false, prefix, repeated_prefix, partial or continue_final_message"),
]


@dataclass(frozen=True, slots=True)
class ProviderCost:
    """The prices of a provider for a million tokens, in nano-dollars."""

    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    cache_write_nanos: int
    cache_write_1h_nanos: int


@dataclass(frozen=True, slots=True)
class Target:
    """A model that may serve a class."""

    provider: str
    model_name: str
    context_tokens: int
    max_output_tokens: int
    # Concurrency limit; None: as many chats as its server accepts.
    concurrency: int | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    # Whether it supports tool calls while streaming, so that our search function can be offered.
    has_tools: bool = True
    # Where its server publishes its queue length, and the longest queue allowed.
    queue_metrics_url: str = ""
    queue_most_waiting: int = MOST_WAITING
    # What the provider charges us; None: not stated.
    cost: ProviderCost | None = None
    # How it is asked to continue an answer that another model began, by the file or as it is known; None: it is not.
    continues: PrefixStyle | None = None
    # What it takes of a request, if the file states it; None: what is known by its name.
    abilities: Abilities | None = None


def read_target(table: Table, providers: Mapping[str, ProviderRoute], timeouts: Timeouts) -> Target:
    """Reads a model; `timeouts` are the defaults if it has none of its own."""
    provider = table.read("provider", kinds.TEXT)
    if provider and provider not in providers:
        table.mistake("provider", f'no provider named "{provider}"')
    kind = providers[provider].kind if provider in providers else ""
    if provider in providers and providers[provider].api == "responses":
        kind = "responses"
    target = Target(
        provider,
        table.read("name", kinds.TEXT),
        table.read("context_tokens", kinds.POSITIVE),
        table.read("max_output_tokens", kinds.POSITIVE),
        table.read("concurrency", kinds.POSITIVE, None),
        replace(timeouts, **{key: table.read(key, kinds.SECONDS) for key in _TIMEOUTS if table.has(key)}),
        # The bundled model does not stream with tools, which is worth it only for the client's own tools.
        table.read("tools", kinds.FLAG, provider not in providers or providers[provider].kind != "local"),
        read_address(table, "queue_metrics_url") if table.has("queue_metrics_url") else "",
        table.read("queue_most_waiting", kinds.POSITIVE, MOST_WAITING),
        _read_cost(table) if table.has("cost") else None,
    )
    abilities = abilities_of(kind, target.model_name)
    if table.has("abilities"):
        abilities = read_abilities(table.inner("abilities"), abilities)
        target = replace(target, abilities=abilities)
    if table.has("continues"):
        target = replace(target, continues=_read_continues(table, kind))
    elif kind:
        target = replace(target, continues=known_style(providers[provider], target.model_name, abilities))
    table.finish(_REMOVED)
    return target


def _read_continues(table: Table, kind: str) -> PrefixStyle | None:
    continues = table.read("continues", _CONTINUES, False)
    is_impossible = kind in ("gemini", "responses")
    if (continues and is_impossible) or (continues not in (True, False) and kind in ("anthropic", "local")):
        table.mistake("continues", f"is not possible with {kind}")
    if isinstance(continues, str):
        return PrefixStyle(continues)
    return PrefixStyle.LAST_MESSAGE if continues else None


def _read_cost(table: Table) -> ProviderCost:
    cost = table.inner("cost")
    input_nanos = cost.read("input", kinds.DOLLARS)
    cached_nanos = cost.read("cached_input", kinds.DOLLARS, input_nanos)
    output_nanos = cost.read("output", kinds.DOLLARS)
    write_nanos = cost.read("cache_write", kinds.DOLLARS, input_nanos)
    write_1h_nanos = cost.read("cache_write_1h", kinds.DOLLARS, write_nanos)
    cost.finish()
    return ProviderCost(input_nanos, cached_nanos, output_nanos, write_nanos, write_1h_nanos)
