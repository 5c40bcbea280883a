"""Counts the tokens of a model by what its provider charges for them, and what that costs."""

from typing import Final

from legato_protos.type.v1.usage_pb2 import Usage
from services.router.providers.base import ProviderUsage
from services.router.routing.target import ProviderCost

# The prices of a provider; those of the prompt but the first concern its cache.
KINDS: Final = ("input", "cached_input", "cache_write", "cache_write_1h", "output")
_MILLION: Final = 10**6


class Spending:
    """The tokens of one model by kind, of all answers that ended."""

    def __init__(self, cost: ProviderCost | None = None) -> None:
        """`cost` is None if the routes do not state it."""
        self._cost = cost
        self.tokens = dict.fromkeys(KINDS, 0)

    def add(self, counted: Usage, told: ProviderUsage | None) -> None:
        """Adds an answer: `told` is what the provider reported, of which `counted` is what was believed."""
        unwritten_tokens = counted.prompt_tokens - counted.cached_tokens
        written_tokens = min((told.cache_write_tokens if told is not None else None) or 0, unwritten_tokens)
        hour_tokens = min((told.cache_write_1h_tokens if told is not None else None) or 0, written_tokens)
        tokens = self.tokens
        tokens["input"] += unwritten_tokens - written_tokens
        tokens["cached_input"] += counted.cached_tokens
        tokens["cache_write"] += written_tokens - hour_tokens
        tokens["cache_write_1h"] += hour_tokens
        tokens["output"] += counted.completion_tokens

    def cost_nanos(self, kind: str) -> float:
        """Returns what the provider charges for the tokens of a kind; 0 if the routes do not state it."""
        if self._cost is None:
            return 0
        # Exact in integers: a price is for a million tokens, and may have fractions of a nano-dollar for one.
        millionths: int = self.tokens[kind] * getattr(self._cost, f"{kind}_nanos")
        return millionths // _MILLION if millionths % _MILLION == 0 else millionths / _MILLION
