"""The cost of tokens: the one rule, by which the ledger charges and callers are told."""

from typing import Final, Protocol

MILLION: Final = 1_000_000
# For a request, an edge holds the price of at least so long a prompt; a test compares them.
LEAST_PROMPT_TOKENS: Final = 128


def least_hold_nanos(least_input_nanos_per_million: int) -> int:
    """Returns what is held for the shortest request, at the lowest price that there is."""
    return LEAST_PROMPT_TOKENS * least_input_nanos_per_million // MILLION


class PricePerMillion(Protocol):
    """A row of the price list, in nano-dollars per million tokens."""

    @property
    def input_nanos_per_million(self) -> int: ...
    @property
    def cached_input_nanos_per_million(self) -> int: ...
    @property
    def output_nanos_per_million(self) -> int: ...


class TokenCounts(Protocol):
    """Cached tokens are included in the prompt's."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...


def cost_nanos(price: PricePerMillion, usage: TokenCounts) -> int:
    """Returns the cost, rounded up once."""
    total = (
        (usage.prompt_tokens - usage.cached_tokens) * price.input_nanos_per_million
        + usage.cached_tokens * price.cached_input_nanos_per_million
        + usage.completion_tokens * price.output_nanos_per_million
    )
    return -(-total // MILLION)
