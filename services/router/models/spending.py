"""Counts the tokens of a model by what its provider charges for them, and what that costs."""

from typing import Final

from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.router.models.call_result import CallObserver, CallPlan, CallResult
from services.router.providers.base import ProviderUsage
from services.router.routes.target import ProviderCost, Target
from services.rules.usage import COLUMNS, PART_OF, with_bounded_parts

# The prices of a provider; those of the prompt but the first concern its cache.
KINDS: Final = ("input", "cached_input", "cache_write", "cache_write_1h", "output")
_MILLION: Final = 10**6


class Spending(CallObserver):
    """The tokens of one model by kind, of all answers that ended."""

    def __init__(self, cost: ProviderCost | None = None) -> None:
        """`cost` is None if the routes do not state it."""
        self._cost = cost
        self.tokens = dict.fromkeys(KINDS, 0)

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        if (finished := result.answer.finished) is not None:
            self.add(finished.usage, result.answer.believed)

    def add(self, counted: Usage, believed: ProviderUsage | None) -> None:
        """Adds an answer: `believed` is what the provider reported, as far as it is plausible, and `counted` is what
        is charged."""
        for kind, tokens in zip(KINDS, _by_kind(counted, believed), strict=True):
            self.tokens[kind] += tokens

    def cost_nanos(self, kind: str) -> float:
        """Returns what the provider charges for the tokens of a kind; 0 if the routes do not state it."""
        if self._cost is None:
            return 0
        # Exact in integers: a price is for a million tokens, and may have fractions of a nano-dollar for one.
        millionths: int = self.tokens[kind] * getattr(self._cost, f"{kind}_nanos")
        return millionths // _MILLION if millionths % _MILLION == 0 else millionths / _MILLION


def describe_call(
    target: Target, counted: Usage, believed: ProviderUsage | None = None, reported: ProviderUsage | None = None
) -> ModelCall:
    """Describes a call for the operator's reports: `believed` is what the provider reported, as far as it is plausible;
    by that and by our own counts it costs."""
    return ModelCall(
        provider=target.provider,
        model_name=target.model_name,
        usage=counted if reported is None else _as_reported(reported, counted),
        cost_nanos=None if target.cost is None else _cost_nanos(target.cost, counted, believed),
    )


def _as_reported(reported: ProviderUsage, counted: Usage) -> Usage:
    """Returns what the provider reported, with our own counts where it reported none."""
    counts = []
    for name in COLUMNS:
        count = getattr(reported, name)
        if count is None:
            # Of a part that is not reported there is nothing.
            count = 0 if name in PART_OF else getattr(counted, name)
        counts.append(count)
    return Usage(**dict(zip(COLUMNS, with_bounded_parts(counts), strict=True)))


def _cost_nanos(cost: ProviderCost, counted: Usage, believed: ProviderUsage | None) -> int:
    uncached, cached, written, written_1h, output = _by_kind(counted, believed)
    millionths = (
        uncached * cost.input_nanos
        + cached * cost.cached_input_nanos
        + written * cost.cache_write_nanos
        + written_1h * cost.cache_write_1h_nanos
        + output * cost.output_nanos
    )
    # Rounded up once, as our own prices.
    return -(-millionths // _MILLION)


def _by_kind(counted: Usage, believed: ProviderUsage | None) -> tuple[int, int, int, int, int]:
    """Returns the tokens in the order of KINDS."""
    cached_tokens = counted.cached_tokens
    unwritten_tokens = counted.prompt_tokens - cached_tokens
    if believed is None or not believed.cache_write_tokens:
        return unwritten_tokens, cached_tokens, 0, 0, counted.completion_tokens
    written_tokens = min(believed.cache_write_tokens, unwritten_tokens)
    hour_tokens = min(believed.cache_write_1h_tokens or 0, written_tokens)
    return (
        unwritten_tokens - written_tokens,
        cached_tokens,
        written_tokens - hour_tokens,
        hour_tokens,
        counted.completion_tokens,
    )
