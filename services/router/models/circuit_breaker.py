"""A circuit breaker per model, driven by the outcomes of calls, with the figures for metrics.

The breaker is closed while the model answers. Consecutive failures, or too high a failure rate, open it, and the model
is skipped. After a pause it is half-open and one chat at a time may try: an answer closes the breaker, a failure
lengthens the pause.

A model that reports being full has not failed: its gate handles that (`saturation.py`).

Pure except for the clock: no task, no timer, no lock. Used by a single event loop.
"""

import math
import random
import statistics
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Final

from services.chassis.telemetry.metrics import FIRST_TOKEN_BOUNDS_S, REQUEST_BOUNDS_S, TOKEN_BOUNDS, Histogram
from services.chassis.timing.deadlines import Clock
from services.router.answers.usage_check import Violation
from services.router.models.call_result import CallEnd, CallObserver, CallPlan, CallResult

FAILURES_IN_A_ROW: Final = 5
# Or this failure rate within a window that has at least LEAST_OUTCOMES. An answer that begins and then breaks counts as
# one success and one failure, so a model whose answers all break has a rate of one half.
FAILURE_SHARE: Final = 0.5
LEAST_OUTCOMES: Final = 20
WINDOW_S: Final = 10.0

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# Jitter of the pause, up or down, so that replicas do not all retry at once.
PAUSE_SPREAD: Final = 0.2
# A model that fails again within this time after recovering gets twice the pause.
STEADY_S: Final = 30.0

# If another model is available, a trial call times out after this multiple of the median latency, but not before the
# minimum: an unresponsive model would otherwise hold the chat for the whole first-byte timeout.
TRIAL_TIMEOUT_LATENCIES: Final = 4.0
LEAST_TRIAL_TIMEOUT_S: Final = 10.0

# If another healthy model is untried, the first token is waited for as many times the median latency, but not less than
# this minimum.
FIRST_TOKEN_LATENCIES: Final = 4.0
LEAST_FIRST_TOKEN_S: Final = 30.0

LATENCIES_KEPT: Final = 128

# A model is slow to begin if a chat waits longer than this, and than this multiple of the median latency.
SLOW_LEAST_S: Final = 2.0
SLOW_LATENCIES: Final = 4.0
# Or than this multiple of its peers' median: models of a pool may differ, but not by so much.
SLOW_PEER_LATENCIES: Final = 10.0
# So many of the last latencies measure how long it takes at present.
RECENT_LATENCIES: Final = 5


class BreakerState(Enum):
    CLOSED = 0
    # Open, but the pause is over: one chat may try, or is trying.
    HALF_OPEN = 1
    OPEN = 2


class CircuitBreaker:
    """The circuit breaker of one model."""

    def __init__(
        self,
        clock: Clock,
        on_change: Callable[[BreakerState], None] = lambda state: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`on_change` is called when the breaker opens and when it closes."""
        self.clock = clock
        self._on_change = on_change
        self._dice = dice
        self.attempts = 0
        self.answers = 0
        self.refusals = 0
        self.failures = 0
        self.violations = dict.fromkeys(Violation, 0)
        self.latencies_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        # Only of complete answers.
        self.durations_s = Histogram(REQUEST_BOUNDS_S)
        self.prompt_tokens = Histogram(TOKEN_BOUNDS)
        self.completion_tokens = Histogram(TOKEN_BOUNDS)
        self.last_latencies_s: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._failures_in_a_row = 0
        self._window = _Window()
        self._is_open = False
        self._changed_at_s = -math.inf
        self._pause_s = FIRST_PAUSE_S
        self._pause_ends_at_s = -math.inf
        self._trial: Attempt | None = None
        # Calls without a first piece, oldest first, except those that a later call has overtaken: streams, and answers
        # that were asked for whole, which take longer.
        self._waiting: tuple[dict[Attempt, None], dict[Attempt, None]] = ({}, {})

    @property
    def state(self) -> BreakerState:
        if not self._is_open:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._trial is not None or self._is_pause_over() else BreakerState.OPEN

    @property
    def median_latency_s(self) -> float | None:
        """Median time to the first piece over recent answers."""
        return statistics.median(self.last_latencies_s) if self.last_latencies_s else None

    @property
    def trial_timeout_s(self) -> float | None:
        """Timeout of a trial call; None while the latency is unknown."""
        latency_s = self.median_latency_s
        return None if latency_s is None else max(LEAST_TRIAL_TIMEOUT_S, TRIAL_TIMEOUT_LATENCIES * latency_s)

    @property
    def first_token_timeout_s(self) -> float:
        """The wait for the first token while another healthy model is untried."""
        return max(LEAST_FIRST_TOKEN_S, FIRST_TOKEN_LATENCIES * (self.median_latency_s or 0.0))

    def is_slow_to_begin(self, peers_latency_s: Callable[[], float | None] = lambda: None) -> bool:
        """Returns whether a chat waits for its first piece clearly longer than usual, or than `peers_latency_s`, the
        usual time of models in its place, and no later one has overtaken it: those that are overtaken have more to
        read or to think about. One that was as slow lately is slow while a single chat waits."""
        oldest = [attempt for waiting in self._waiting for attempt in islice(waiting, 1)]
        if not oldest:
            return False
        waited_s = max(attempt.age_s() - attempt.whole_s for attempt in oldest)
        if waited_s >= SLOW_LEAST_S:
            latency_s = self.median_latency_s
            if latency_s is not None and waited_s >= SLOW_LATENCIES * latency_s:
                return True
        expected_s = max(waited_s, self._recent_latency_s())
        if expected_s < SLOW_LEAST_S:
            return False
        usual_s = peers_latency_s()
        return usual_s is not None and expected_s >= SLOW_PEER_LATENCIES * usual_s

    def _recent_latency_s(self) -> float:
        latencies_s = self.last_latencies_s
        if len(latencies_s) < RECENT_LATENCIES or latencies_s[-1] < SLOW_LEAST_S:
            return 0.0
        return statistics.median(latencies_s[-number] for number in range(1, RECENT_LATENCIES + 1))

    def may_be_asked(self) -> bool:
        return not self._is_open or (self._trial is None and self._is_pause_over())

    def start_attempt(self, whole_s: float = 0.0) -> "Attempt":
        """Starts a call to the model, even if the breaker is open and no other model was left. `whole_s` is the time of
        an answer that is asked for whole."""
        attempt = Attempt(self, whole_s, is_trial=self._is_open and self.may_be_asked())
        if attempt.is_trial:
            self._trial = attempt
        self.attempts += 1
        self._waiting[bool(whole_s)][attempt] = None
        return attempt

    def forget_overtaken(self, attempt: "Attempt") -> None:
        """Drops the calls before one that has begun to be answered: they wait for reasons of their own."""
        for waiting in self._waiting:
            while waiting and (oldest := next(iter(waiting))).began_s <= attempt.began_s:
                del waiting[oldest]

    def worked(self, attempt: "Attempt", *, has_answered: bool) -> None:
        """Records that the model works, whether it answered or refused."""
        if has_answered:
            self.answers += 1
        else:
            self.refusals += 1
        self.over(attempt)
        if attempt.began_s < self._changed_at_s:
            # The call began before the last state change, so it is no evidence of the present state.
            return
        self._failures_in_a_row = 0
        if self._is_open:
            self._change(is_open=False)
        else:
            self._window.record(self.clock.elapsed_s(), failed=False)

    def failed(self, attempt: "Attempt") -> None:
        self.failures += 1
        is_trial = self._trial is attempt
        self.over(attempt)
        if attempt.began_s < self._changed_at_s:
            return
        if self._is_open:
            if is_trial:
                self._pause(2 * self._pause_s)
            return
        now_s = self.clock.elapsed_s()
        self._failures_in_a_row += 1
        self._window.record(now_s, failed=True)
        if self._failures_in_a_row >= FAILURES_IN_A_ROW or self._window.fails(now_s):
            self._pause(FIRST_PAUSE_S if now_s - self._changed_at_s >= STEADY_S else 2 * self._pause_s)
            self._change(is_open=True)

    def violated(self, violation: Violation) -> None:
        """Counts a violation, which is not a failure: the answer so far is usable."""
        self.violations[violation] += 1

    def over(self, attempt: "Attempt") -> None:
        """Ends a call's wait, and if it is a trial, lets another chat try, whatever its outcome."""
        self._waiting[bool(attempt.whole_s)].pop(attempt, None)
        if self._trial is attempt:
            self._trial = None

    def _change(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self._changed_at_s = self.clock.elapsed_s()
        self._failures_in_a_row = 0
        self._window = _Window()
        self._on_change(self.state)

    def _pause(self, pause_s: float) -> None:
        self._pause_s = min(pause_s, LONGEST_PAUSE_S)
        spread = 1 + PAUSE_SPREAD * (2 * self._dice() - 1)
        self._pause_ends_at_s = self.clock.elapsed_s() + self._pause_s * spread

    def _is_pause_over(self) -> bool:
        return self.clock.elapsed_s() >= self._pause_ends_at_s


class Attempt(CallObserver):
    """One call to a model by one chat: the observer by which its circuit breaker learns of the call. It is answered,
    declined, fails, or is abandoned."""

    __slots__ = ("_breaker", "began_s", "first_token_s", "is_trial", "whole_s")

    def __init__(self, breaker: CircuitBreaker, whole_s: float, *, is_trial: bool) -> None:
        self._breaker = breaker
        # How long a whole answer is expected to take; 0 if it is streamed.
        self.whole_s = whole_s
        self.began_s = breaker.clock.elapsed_s()
        # The single trial call of a half-open breaker.
        self.is_trial = is_trial
        # None until the answer begins, and for a whole one.
        self.first_token_s: float | None = None

    def begun(self, *, is_answer: bool = True) -> None:
        """Records the first piece, which is an answer unless that counts only when it is complete."""
        if not self.whole_s:
            latency_s = self.first_token_s = self.age_s()
            self._breaker.last_latencies_s.append(latency_s)
            self._breaker.latencies_s.observe(latency_s)
        self._breaker.forget_overtaken(self)
        if is_answer:
            self.answered()

    def answered(self) -> None:
        self._breaker.worked(self, has_answered=True)

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        if result.end in (CallEnd.FAILED, CallEnd.CUT):
            self.failed()
        elif result.end is CallEnd.DECLINED:
            self.declined()
        elif result.end is CallEnd.GIVEN_UP:
            self.given_up()
        if (finished := result.answer.finished) is not None:
            usage = finished.usage
            self.finished(usage.prompt_tokens, usage.completion_tokens, result.duration_s, result.trace_id)
        if result.answer.is_beyond_limit and plan.is_limit_told:
            self.violated(Violation.MAX_TOKENS)

    def finished(
        self, prompt_tokens: int, completion_tokens: int, duration_s: float | None = None, trace_id: str = ""
    ) -> None:
        """Records a complete answer, which ends now unless its duration is given, with its trace beside its times."""
        breaker = self._breaker
        if duration_s is None:
            duration_s = self.age_s()
        breaker.durations_s.observe(duration_s)
        breaker.prompt_tokens.observe(prompt_tokens)
        breaker.completion_tokens.observe(completion_tokens)
        if trace_id:
            breaker.durations_s.record_trace(duration_s, trace_id)
            if self.first_token_s is not None:
                breaker.latencies_s.record_trace(self.first_token_s, trace_id)

    def age_s(self) -> float:
        """Time since the model was called."""
        return self._breaker.clock.elapsed_s() - self.began_s

    def violated(self, violation: Violation) -> None:
        self._breaker.violated(violation)

    def declined(self) -> None:
        """Records that the model works but refused: it is full, or does not accept this request."""
        self._breaker.worked(self, has_answered=False)

    def failed(self) -> None:
        """Records a failure before or during the answer."""
        self._breaker.failed(self)

    def given_up(self) -> None:
        """Abandons the call without an outcome."""
        self._breaker.over(self)


class _Window:
    """Counts recent outcomes in two half windows; the older half is dropped when the newer is full."""

    def __init__(self) -> None:
        self._half = 0
        # (outcomes, failures) of the previous and the current half.
        self._older = (0, 0)
        self._newer = (0, 0)

    def record(self, now_s: float, *, failed: bool) -> None:
        self._move_to(now_s)
        outcomes, failures = self._newer
        self._newer = (outcomes + 1, failures + failed)

    def fails(self, now_s: float) -> bool:
        self._move_to(now_s)
        outcomes = self._older[0] + self._newer[0]
        failures = self._older[1] + self._newer[1]
        return outcomes >= LEAST_OUTCOMES and failures >= FAILURE_SHARE * outcomes

    def _move_to(self, now_s: float) -> None:
        half = int(now_s / (WINDOW_S / 2))
        if half != self._half:
            self._older = self._newer if half == self._half + 1 else (0, 0)
            self._newer = (0, 0)
            self._half = half
