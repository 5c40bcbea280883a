"""Counts what the calls of a class come to, by model and by the role in which it was called; never any content."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.chassis.telemetry.metrics import FIRST_TOKEN_BOUNDS_S, REQUEST_BOUNDS_S, Histogram
from services.router.models.call_result import CallEnd, CallPlan, CallResult
from services.router.models.states import ClassModels, ClassObserver
from services.router.providers.base import Failure
from services.router.routes.target import Target

# Errors beside the kinds of `Failure`: an answer that broke off, and one of nothing.
CUT: Final = "cut"
EMPTY: Final = "empty"
# The errors that are the model's fault. One that is full, or whose window is too small, works.
FAULTS: Final = frozenset({Failure.PROVIDER.value, Failure.REFUSED.value, CUT, EMPTY})


@dataclass(slots=True)
class CallOutcome:
    """The result of one call: an answer, or an error."""

    # The value of a `Failure`, `CUT` or `EMPTY`; empty for a complete answer.
    error: str = ""
    # None: no answer began.
    first_token_s: float | None = None
    duration_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = ""
    tool_calls: int = 0
    valid_tool_calls: int = 0

    @property
    def is_failure(self) -> bool:
        return self.error in FAULTS or self.valid_tool_calls < self.tool_calls


@dataclass(slots=True)
class ModelOutcomes:
    """The counts of one model in one role, since it came into the routes of this process."""

    role: str
    provider: str
    model_name: str
    calls: int = 0
    # Complete ones.
    answers: int = 0
    # Errors that are the model's fault, and answers with invalid tool calls.
    failures: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first_token_s: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_BOUNDS_S))
    # Of complete answers, as are the tokens.
    durations_s: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS_S))
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    tool_calls: int = 0
    # Those with a JSON object as arguments, of a function that was offered.
    valid_tool_calls: int = 0

    def record(self, outcome: CallOutcome) -> None:
        self.calls += 1
        self.failures += outcome.is_failure
        if outcome.first_token_s is not None:
            self.first_token_s.observe(outcome.first_token_s)
        if outcome.error:
            self.errors[outcome.error] += 1
            return
        self.answers += 1
        self.durations_s.observe(outcome.duration_s)
        self.prompt_tokens += outcome.prompt_tokens
        self.completion_tokens += outcome.completion_tokens
        self.finish_reasons[outcome.finish_reason] += 1
        self.tool_calls += outcome.tool_calls
        self.valid_tool_calls += outcome.valid_tool_calls


class ClassOutcomes:
    """The outcomes of the models of one class."""

    def __init__(self) -> None:
        self._by_model: dict[tuple[str, str, str], ModelOutcomes] = {}

    @property
    def models(self) -> Collection[ModelOutcomes]:
        """Those that were called."""
        return self._by_model.values()

    def record(self, role: str, target: Target, outcome: CallOutcome) -> None:
        key = (role, target.provider, target.model_name)
        if (model := self._by_model.get(key)) is None:
            model = self._by_model[key] = ModelOutcomes(*key)
        model.record(outcome)

    def keep(self, targets: Collection[Target]) -> None:
        """Forgets the models that the class no longer has."""
        names = {(target.provider, target.model_name) for target in targets}
        self._by_model = {key: model for key, model in self._by_model.items() if key[1:] in names}


class OutcomesByClass(ClassObserver):
    """The outcomes of all classes of several models; one that is alone is compared with no other."""

    def __init__(self) -> None:
        self.by_class: dict[str, ClassOutcomes] = {}

    def follow(self, by_class: Mapping[str, ClassModels]) -> None:
        before = self.by_class
        self.by_class = {
            class_id: before.get(class_id) or ClassOutcomes()
            for class_id, models in by_class.items()
            if len(models.of_route) > 1
        }
        for class_id, outcomes in self.by_class.items():
            outcomes.keep(by_class[class_id].route.targets)

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        outcomes = self.by_class.get(plan.class_id)
        if outcomes is not None and (outcome := outcome_of(result)) is not None:
            outcomes.record(plan.role, plan.target, outcome)


def outcome_of(result: CallResult) -> CallOutcome | None:
    """Returns what a call came to; None if it has no outcome: it was left, or is repeated in another way."""
    first_token_s, finished = result.first_token_s, result.answer.finished
    if result.end is CallEnd.EMPTY:
        return CallOutcome(EMPTY, first_token_s)
    if result.end is CallEnd.CUT:
        return CallOutcome(CUT, first_token_s)
    if result.end is CallEnd.ANSWERED and finished is not None:
        return CallOutcome(
            EMPTY if result.is_silent else "",
            first_token_s,
            result.duration_s,
            finished.usage.prompt_tokens,
            finished.usage.completion_tokens,
            finished.finish_reason,
            result.tool_calls,
            result.valid_tool_calls,
        )
    return None if result.failure is None or result.is_repeated else CallOutcome(result.failure.value)
