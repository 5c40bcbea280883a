"""Counts what the calls of a class come to, by model and by the role in which it was called; never any content."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from services.chassis.telemetry.metrics import FIRST_TOKEN_BOUNDS_S, REQUEST_BOUNDS_S, Histogram
from services.router.providers.base import Failure
from services.router.routes.target import Target
from services.router.trials.canary import Canary


class CallRole(StrEnum):
    """Why a model was called."""

    # It is one of the models of the class.
    BASELINE = "baseline"
    # It is tried for some of the accounts.
    CANARY = "canary"


# Errors beside the kinds of `Failure`: an answer that broke off, and one of nothing.
CUT: Final = "cut"
EMPTY: Final = "empty"
# The errors that are the model's fault. One that is full, or whose window is too small, works.
_FAULTS: Final = frozenset({Failure.PROVIDER.value, Failure.REFUSED.value, CUT, EMPTY})


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
        return self.error in _FAULTS or self.valid_tool_calls < self.tool_calls


@dataclass(slots=True)
class ModelOutcomes:
    """The counts of one model in one role, since it came into the routes of this process."""

    role: CallRole
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

    def note(self, outcome: CallOutcome) -> None:
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
        # Judged by them; None: there is none.
        self.canary: Canary | None = None
        self._by_model: dict[tuple[CallRole, str, str], ModelOutcomes] = {}

    @property
    def models(self) -> Collection[ModelOutcomes]:
        """Those that were called."""
        return self._by_model.values()

    def note(self, role: CallRole, target: Target, outcome: CallOutcome, *, is_judged: bool = True) -> None:
        """`is_judged` if the canary is judged by it."""
        key = (role, target.provider, target.model_name)
        if (model := self._by_model.get(key)) is None:
            model = self._by_model[key] = ModelOutcomes(*key)
        model.note(outcome)
        says_something = outcome.is_failure or not outcome.error
        if self.canary is not None and is_judged and says_something:
            self.canary.note(is_canary=role is CallRole.CANARY, failed=outcome.is_failure)

    def keep(self, targets: Collection[Target]) -> None:
        """Forgets the models that the class no longer has."""
        names = {(target.provider, target.model_name) for target in targets}
        self._by_model = {key: model for key, model in self._by_model.items() if key[1:] in names}


# Takes the outcome of one call.
NoteOutcome = Callable[[CallOutcome], None]
