"""Measures the speed of models in the last day, by marks of what their circuit breakers count anyway.

A mark is made where the speed is read, at most once an hour: edges read it with the list of models, twice a minute. A
chat costs nothing more.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from services.chassis.telemetry.metrics import FIRST_TOKEN_BOUNDS_S, quantile
from services.chassis.timing.deadlines import Clock
from services.router.models.circuit_breaker import CircuitBreaker

DAY_S: Final = 24 * 3600.0
MARKED_EVERY_S: Final = 3600.0
# Fewer answers are too few to report.
LEAST_ANSWERS: Final = 20
# Where less of the time is between the first and the last piece, answers come whole.
LEAST_PART_AFTER_FIRST: Final = 0.02


@dataclass(frozen=True, slots=True)
class ClassSpeed:
    # Complete ones.
    answers: int
    median_first_token_s: float
    # Once an answer has begun; None: answers come whole.
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of a model since it came into the routes."""

    first_tokens: tuple[int, ...]
    first_tokens_s: float
    answers: int
    durations_s: float
    completion_tokens: int

    def since(self, earlier: "_Counted") -> "_Counted":
        pairs = zip(self.first_tokens, earlier.first_tokens, strict=True)
        return _Counted(
            tuple(now - before for now, before in pairs),
            self.first_tokens_s - earlier.first_tokens_s,
            self.answers - earlier.answers,
            self.durations_s - earlier.durations_s,
            self.completion_tokens - earlier.completion_tokens,
        )

    @property
    def after_first_s(self) -> float:
        """About the time between the first and the last pieces of the answers."""
        begun = sum(self.first_tokens)
        return self.durations_s - self.answers * self.first_tokens_s / begun if begun else 0.0


_NOTHING: Final = _Counted((0,) * (len(FIRST_TOKEN_BOUNDS_S) + 1), 0.0, 0, 0.0, 0)


class RecentSpeed:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The oldest first: the last from before the day, and those in it.
        self._marks: WeakKeyDictionary[CircuitBreaker, deque[tuple[float, _Counted]]] = WeakKeyDictionary()

    def of(self, breakers: Iterable[CircuitBreaker]) -> ClassSpeed | None:
        """Returns the speed of the models of a class; None if they gave too few answers."""
        counted = [self._last_day(breaker) for breaker in breakers]
        answers = sum(each.answers for each in counted)
        first_tokens = [sum(counts) for counts in zip(*(each.first_tokens for each in counted), strict=True)]
        # Answers that were asked for whole have none.
        if min(answers, sum(first_tokens)) < LEAST_ANSWERS:
            return None
        after_first_s = sum(each.after_first_s for each in counted)
        is_streamed = after_first_s >= LEAST_PART_AFTER_FIRST * sum(each.durations_s for each in counted)
        return ClassSpeed(
            answers,
            quantile(FIRST_TOKEN_BOUNDS_S, first_tokens, 0.5) or 0.0,
            sum(each.completion_tokens for each in counted) / after_first_s if is_streamed and after_first_s else None,
        )

    def _last_day(self, breaker: CircuitBreaker) -> _Counted:
        now_s, counted = self._clock.elapsed_s(), _counted(breaker)
        marks = self._marks.setdefault(breaker, deque([(now_s, _NOTHING)]))
        while len(marks) > 1 and marks[1][0] <= now_s - DAY_S:
            marks.popleft()
        if now_s - marks[-1][0] >= MARKED_EVERY_S:
            marks.append((now_s, counted))
        return counted.since(marks[0][1])


def _counted(breaker: CircuitBreaker) -> _Counted:
    return _Counted(
        tuple(breaker.latencies_s.counts),
        breaker.latencies_s.total,
        sum(breaker.durations_s.counts),
        breaker.durations_s.total,
        int(breaker.completion_tokens.total),
    )
