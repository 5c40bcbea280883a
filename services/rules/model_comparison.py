"""Compares two models by the outcomes of the calls to them, summed over routers, classes and roles."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from legato_protos.router.v1.router_pb2 import Distribution, ModelOutcomes
from services.chassis.sentence import Sentence
from services.chassis.telemetry.metrics import quantile

# Fewer calls of one of them say too little, and so do fewer failures of the worse.
LEAST_CALLS: Final = 20
LEAST_FAILURES: Final = 3
# A difference is called one if chance would make it in fewer than one of 100 comparisons of equal models.
_DEVIATIONS: Final = 2.58
_COUNTS: Final = (
    *("calls", "answers", "failures"),
    *("prompt_tokens", "completion_tokens", "tool_calls", "valid_tool_calls"),
)


@dataclass(slots=True)
class OutcomeSum:
    """The outcomes of one model."""

    name: str
    calls: int = 0
    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tool_calls: int = 0
    valid_tool_calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    first_token_s: Distribution = field(default_factory=Distribution)

    def add(self, outcomes: ModelOutcomes) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(outcomes, name))
        self.errors.update(outcomes.errors)
        self.finish_reasons.update(outcomes.finish_reasons)
        added = outcomes.first_token_s
        counts = self.first_token_s.counts or [0] * len(added.counts)
        summed = [count + more for count, more in zip(counts, added.counts, strict=True)]
        self.first_token_s = Distribution(bounds=added.bounds, counts=summed)

    @property
    def failure_share(self) -> float | None:
        return _share(self.failures, self.calls)

    @property
    def valid_call_share(self) -> float | None:
        return _share(self.valid_tool_calls, self.tool_calls)

    def first_token_at_s(self, share: float) -> float | None:
        """Returns about how long the given share of the first tokens took at most; None if there was none."""
        return quantile(self.first_token_s.bounds, self.first_token_s.counts, share)


def sum_outcomes(name: str, outcomes: Iterable[ModelOutcomes]) -> OutcomeSum:
    """Sums those of one model, which is named as its provider calls it, or as PROVIDER/MODEL."""
    total = OutcomeSum(name)
    for each in outcomes:
        if name in (each.model_name, f"{each.provider}/{each.model_name}"):
            total.add(each)
    return total


def compare(first: OutcomeSum, second: OutcomeSum) -> Sentence:
    """Says in a sentence which of the two fails more often, if that is no chance."""
    for each in (first, second):
        if each.calls < LEAST_CALLS:
            return Sentence("too_few_calls", name=each.name, calls=each.calls, least=LEAST_CALLS)
    worse, better = sorted((first, second), key=lambda each: each.failures / each.calls, reverse=True)
    usual = (worse.failures + better.failures) / (worse.calls + better.calls)
    deviation = math.sqrt(usual * (1 - usual) * (1 / worse.calls + 1 / better.calls))
    difference = worse.failures / worse.calls - better.failures / better.calls
    if worse.failures < LEAST_FAILURES or difference <= _DEVIATIONS * deviation:
        return Sentence("fails_about_equally", **_figures(first, second))
    return Sentence("fails_more_often", name=worse.name, **_figures(worse, better))


def _figures(first: OutcomeSum, second: OutcomeSum) -> dict[str, str]:
    return {
        "failed": f"{100 * first.failures / first.calls:.1f}",
        "calls": str(first.calls),
        "other_failed": f"{100 * second.failures / second.calls:.1f}",
        "other_calls": str(second.calls),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
