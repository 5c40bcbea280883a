"""Tries a new model for some accounts of a class, and gives it up when it fails clearly more than the others.

Each router judges by the calls that it makes itself. A failure before the answer counts against the new model only if
another model then answered the chat: what no model answers is no evidence against this one.

Pure: no clock, no task, no lock. Used by a single event loop.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.models.call_result import BASELINE, CallEnd, CallPlan, CallResult
from services.router.models.states import ClassModels, ClassObserver, WeightedModel
from services.router.providers.http.telemetry_names import MODEL_LABELS
from services.router.routes.class_route import CanaryRoute
from services.router.trials.outcomes import FAULTS, outcome_of

# The role of its calls.
ROLE: Final = "canary"

# A bad start or a breakdown: so many failures in a row, while the others answer and have failed less often than this.
FAILURES_IN_A_ROW: Final = 5
MOST_BASELINE_SHARE: Final = 0.1
# Otherwise, after at least so many calls: a sequential test of the hypothesis that it fails by the margin more often
# against the one that it fails as often. Whenever it is looked at, the odds of being wrong are one to `EVIDENCE`.
LEAST_CALLS: Final = 20
MARGIN: Final = 0.05
EVIDENCE: Final = 1000
# With so many calls, the counts of both are halved, so that a long good time does not hide a bad one.
MOST_CALLS: Final = 400
# Before their first call, the others are thought to have failed once in so many: a share of 5 % until more is known.
_PRIOR_CALLS: Final = 20

_HASH_BYTES: Final = 8
_HASHES: Final = float(1 << 8 * _HASH_BYTES)


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0

    def record(self, *, failed: bool) -> None:
        self.calls += 1
        self.failures += failed

    def __str__(self) -> str:
        return f"{self.failures} of {self.calls} calls"

    def halve(self) -> None:
        self.calls, self.failures = self.calls // 2, self.failures // 2


class Canary:
    def __init__(self, class_id: str, route: CanaryRoute, on_rollback: "Callable[[Canary], None]") -> None:
        self.class_id = class_id
        self.route = route
        self._on_rollback = on_rollback
        self.resume()

    def resume(self) -> None:
        """Sends accounts to the model, and judges it anew."""
        self.is_rolled_back = False
        self.tally, self.baseline = Tally(), Tally()
        self._failures_in_a_row = 0
        # The calls of the others since the first of these failures.
        self._meanwhile = Tally()

    def includes(self, account_id: str) -> bool:
        """Returns whether the model is tried first for an account. A higher percentage includes the same accounts, and
        others."""
        if self.is_rolled_back:
            return False
        return account_id in self.route.accounts or self._place_of(account_id) < self.route.percent / 100

    def _place_of(self, account_id: str) -> float:
        """Returns a number from 0 up to 1 that is always the same for an account, a class and a model."""
        key = "\n".join((account_id, self.class_id, self.route.target.model_name))
        digest = blake2b(key.encode(), digest_size=_HASH_BYTES).digest()
        return int.from_bytes(digest) / _HASHES

    def record(self, *, is_canary: bool, failed: bool) -> None:
        """Judges by the end of a call to the model, or to another of the class."""
        if self.is_rolled_back:
            return
        if is_canary:
            if failed and not self._failures_in_a_row:
                self._meanwhile = Tally()
            self._failures_in_a_row = self._failures_in_a_row + 1 if failed else 0
            self.tally.record(failed=failed)
        else:
            self._meanwhile.record(failed=failed)
            self.baseline.record(failed=failed)
        if self.tally.calls >= MOST_CALLS:
            self.tally.halve()
            self.baseline.halve()
        if self._fails_in_a_row() or self._fails_more():
            self.is_rolled_back = True
            self._on_rollback(self)

    def _fails_in_a_row(self) -> bool:
        if self._failures_in_a_row < FAILURES_IN_A_ROW or self._usual_share() >= MOST_BASELINE_SHARE:
            return False
        return self._meanwhile.failures < MOST_BASELINE_SHARE * self._meanwhile.calls

    def _usual_share(self) -> float:
        """Returns the share of their calls in which the others fail."""
        return (self.baseline.failures + 1) / (self.baseline.calls + _PRIOR_CALLS)

    def _fails_more(self) -> bool:
        calls, failures = self.tally.calls, self.tally.failures
        if calls < LEAST_CALLS:
            return False
        usual = self._usual_share()
        # It may be higher than what was seen.
        usual += math.sqrt(usual * (1 - usual) / (self.baseline.calls + _PRIOR_CALLS))
        worse = usual + MARGIN
        if worse >= 1:
            return False
        likelihood = failures * math.log(worse / usual) + (calls - failures) * math.log((1 - worse) / (1 - usual))
        return likelihood >= math.log(EVIDENCE)


class _ClassCanary(NamedTuple):
    """The canary of a class, and its models for accounts that are in it and for others."""

    canary: Canary
    models_with: ClassModels
    models_without: ClassModels

    @property
    def member(self) -> WeightedModel:
        return self.models_with.tiers[0][0]


class Canaries(ClassObserver):
    """The canaries of all classes: finds the models for an account, and judges by the calls to them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_class: dict[str, _ClassCanary] = {}
        self._models: Mapping[str, ClassModels] = {}

    def follow(self, by_class: Mapping[str, ClassModels]) -> None:
        """Takes over the classes. The judgement on a canary is kept unless the canary has changed."""
        before, self._by_class, self._models = self._by_class, {}, by_class
        for class_id, models in by_class.items():
            if (route := models.route.canary) is not None:
                kept = before.get(class_id)
                canary = None if kept is None or kept.canary.route != route else kept.canary
                canary = canary or Canary(class_id, route, self._log_rollback)
                self._by_class[class_id] = _arranged(canary, models)

    def find_models(self, class_id: str, account_id: str) -> ClassModels:
        """Returns the models for an account, the canary before the others if it is tried for that."""
        found = self._by_class.get(class_id)
        if found is None:
            return self._models[class_id]
        return found.models_with if found.canary.includes(account_id) else found.models_without

    def on_fallback(self, plan: CallPlan) -> None:
        """Judges a canary that failed before: another model answers the chat."""
        found = self._by_class.get(plan.class_id)
        if found is None or plan.role != BASELINE:
            return
        if any(failed.role == ROLE and failed.failure.value in FAULTS for failed in plan.failed_before):
            found.canary.record(is_canary=True, failed=True)

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        found = self._by_class.get(plan.class_id)
        if found is None or (outcome := outcome_of(result)) is None:
            return
        is_canary = plan.role == ROLE
        is_known_later = is_canary and result.end in (CallEnd.FAILED, CallEnd.DECLINED, CallEnd.GIVEN_UP)
        if not is_known_later and (outcome.is_failure or not outcome.error):
            found.canary.record(is_canary=is_canary, failed=outcome.is_failure)

    def listed(self, class_id: str) -> tuple[Canary, WeightedModel] | None:
        """Returns the canary of a class and its model."""
        found = self._by_class.get(class_id)
        return None if found is None else (found.canary, found.member)

    def resume(self, class_id: str) -> None:
        found = self._by_class.get(class_id)
        if found is None:
            raise LegatoError(Reason.NOT_FOUND, Sentence("canary_missing"))
        found.canary.resume()

    def show(self, registry: Registry) -> None:
        """Registers their metric."""
        state = "Canary of a class: 0 tried for its accounts, 1 rolled back."
        registry.gauge("legato_canary_state", state, lambda: dict(self._states()), "class", *MODEL_LABELS)

    def _states(self) -> Iterator[tuple[tuple[str, ...], int]]:
        for class_id, found in self._by_class.items():
            target = found.canary.route.target
            yield (class_id, target.provider, target.model_name), int(found.canary.is_rolled_back)

    def _log_rollback(self, canary: Canary) -> None:
        target = canary.route.target
        self._log.warning(
            "canary.rolled_back",
            class_id=canary.class_id,
            provider=target.provider,
            model_name=target.model_name,
            reason=f"{canary.tally} failed, of the others {canary.baseline}",
        )


def _arranged(canary: Canary, models: ClassModels) -> _ClassCanary:
    [model_state] = [each for each in models.of_route if each.target == canary.route.target]
    others = (tuple(member for member in tier if member.model_state is not model_state) for tier in models.tiers)
    tiers = ((WeightedModel(model_state, 1),), *filter(None, others))
    in_order = tuple(member.model_state for tier in tiers for member in tier)
    without = replace(models, judges_tool_calls=True)
    models_with = replace(without, tiers=tiers, all=in_order, roles={model_state: ROLE})
    return _ClassCanary(canary, models_with, without)
