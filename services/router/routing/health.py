"""Whether a model is worth asking, by what became of those who asked it: a breaker, and figures for whoever looks.

It is closed while the model answers. After failures in a row, or too large a share of them, it is open, and the model
is passed over. After a pause one chat at a time may try it: an answer closes the breaker, a failure makes the pause
longer.

A model that says that it is full has not failed: for that there is its gate (`saturation.py`).

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
import random
import statistics
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from services.chassis.telemetry.metrics import FIRST_TOKEN_BOUNDS_S, REQUEST_BOUNDS_S, TOKEN_BOUNDS, Histogram
from services.chassis.timing.clock import Clock
from services.router.answers.plausible import Violation

FAILURES_IN_A_ROW: Final = 5
# Or this share of what was heard of within a window, if that is so much at least. An answer that begins and then
# breaks is heard of twice: so a model all of whose answers break fails half of the time.
FAILURE_SHARE: Final = 0.5
LEAST_OUTCOMES: Final = 20
WINDOW_S: Final = 10.0

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# Pauses are different by so much, up or down, that replicas do not all try at once.
PAUSE_SPREAD: Final = 0.2
# One that fails again sooner than this after it came back is given twice the pause.
STEADY_S: Final = 30.0

# A chat that tries a model out waits for this many times the usual latency, but not less than this, where another
# model can take it: behind one that is silent it would wait for as long as any answer may take to begin.
TRIAL_PATIENCE: Final = 4.0
LEAST_TRIAL_PATIENCE_S: Final = 10.0

LATENCIES_KEPT: Final = 128


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    # Open, but the pause is over: one may try, or is trying.
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Of one model."""

    def __init__(
        self,
        clock: Clock,
        on_change: Callable[[BreakerState], None] = lambda state: None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`on_change` is called when the breaker opens and when it closes."""
        self._clock = clock
        self._on_change = on_change
        self._dice = dice
        self.attempts = 0
        self.answers = 0
        self.refusals = 0
        self.failures = 0
        self.violations = dict.fromkeys(Violation, 0)
        self.latencies_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        # Of answers that came to their end.
        self.durations_s = Histogram(REQUEST_BOUNDS_S)
        self.prompt_tokens = Histogram(TOKEN_BOUNDS)
        self.completion_tokens = Histogram(TOKEN_BOUNDS)
        self._last_latencies_s: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._failures_in_a_row = 0
        self._window = _Window()
        self._is_open = False
        self._changed_at_s = -math.inf
        self._pause_s = FIRST_PAUSE_S
        self._pause_ends_at_s = -math.inf
        self._trial: Attempt | None = None

    @property
    def state(self) -> BreakerState:
        if not self._is_open:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._trial is not None or self._is_pause_over() else BreakerState.OPEN

    @property
    def median_latency_s(self) -> float | None:
        """From the question to the first piece of the answer, of the last answers."""
        return statistics.median(self._last_latencies_s) if self._last_latencies_s else None

    @property
    def trial_patience_s(self) -> float | None:
        """None where nothing is known of its latency."""
        latency_s = self.median_latency_s
        return None if latency_s is None else max(LEAST_TRIAL_PATIENCE_S, TRIAL_PATIENCE * latency_s)

    def may_be_asked(self) -> bool:
        return not self._is_open or (self._trial is None and self._is_pause_over())

    def start_attempt(self) -> "Attempt":
        """Somebody asks the model now, whether it may be asked or, for want of another, though it may not."""
        is_trial = self._is_open and self.may_be_asked()
        attempt = Attempt(self, self._clock.elapsed_s(), is_trial=is_trial)
        if is_trial:
            self._trial = attempt
        self.attempts += 1
        return attempt

    def begun(self, attempt: "Attempt") -> None:
        latency_s = self._clock.elapsed_s() - attempt.began_s
        self._last_latencies_s.append(latency_s)
        self.latencies_s.observe(latency_s)
        self.answers += 1
        self.works(attempt)

    def declined(self, attempt: "Attempt") -> None:
        self.refusals += 1
        self.works(attempt)

    def finished(self, attempt: "Attempt", prompt_tokens: int, completion_tokens: int) -> None:
        self.durations_s.observe(self._clock.elapsed_s() - attempt.began_s)
        self.prompt_tokens.observe(prompt_tokens)
        self.completion_tokens.observe(completion_tokens)

    def age_s(self, attempt: "Attempt") -> float:
        return self._clock.elapsed_s() - attempt.began_s

    def works(self, attempt: "Attempt") -> None:
        self.over(attempt)
        if attempt.began_s < self._changed_at_s:
            # It says nothing about now.
            return
        self._failures_in_a_row = 0
        if self._is_open:
            self._change(is_open=False)
        else:
            self._window.note(self._clock.elapsed_s(), failed=False)

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
        now_s = self._clock.elapsed_s()
        self._failures_in_a_row += 1
        self._window.note(now_s, failed=True)
        if self._failures_in_a_row >= FAILURES_IN_A_ROW or self._window.fails(now_s):
            self._pause(FIRST_PAUSE_S if now_s - self._changed_at_s >= STEADY_S else 2 * self._pause_s)
            self._change(is_open=True)

    def over(self, attempt: "Attempt") -> None:
        """Whatever became of it: another may try."""
        if self._trial is attempt:
            self._trial = None

    def _change(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self._changed_at_s = self._clock.elapsed_s()
        self._failures_in_a_row = 0
        self._window = _Window()
        self._on_change(self.state)

    def _pause(self, pause_s: float) -> None:
        self._pause_s = min(pause_s, LONGEST_PAUSE_S)
        spread = 1 + PAUSE_SPREAD * (2 * self._dice() - 1)
        self._pause_ends_at_s = self._clock.elapsed_s() + self._pause_s * spread

    def _is_pause_over(self) -> bool:
        return self._clock.elapsed_s() >= self._pause_ends_at_s


class Attempt:
    """One chat's, from when the model is asked. It is answered, fails, or is over without either."""

    __slots__ = ("_health", "began_s", "is_trial")

    def __init__(self, health: CircuitBreaker, began_s: float, *, is_trial: bool) -> None:
        self._health = health
        self.began_s = began_s
        # Of a model that has failed, by the one chat that may at this time.
        self.is_trial = is_trial

    def begun(self) -> None:
        """The first piece of the answer is there."""
        self._health.begun(self)

    def finished(self, prompt_tokens: int, completion_tokens: int) -> None:
        """All of the answer is there."""
        self._health.finished(self, prompt_tokens, completion_tokens)

    def age_s(self) -> float:
        """How long ago the model was asked."""
        return self._health.age_s(self)

    def violated(self, violation: Violation) -> None:
        """It is no failure: the answer is good, or good enough up to here."""
        self._health.violations[violation] += 1

    def declined(self) -> None:
        """The model works, and said no: it is full, or does not accept this request."""
        self._health.declined(self)

    def failed(self) -> None:
        """In place of an answer, or in the middle of one."""
        self._health.failed(self)

    def given_up(self) -> None:
        """Nobody wants to know any more."""
        self._health.over(self)


class _Window:
    """What was heard of in the last seconds, in two halves: when one is full, the older one is forgotten."""

    def __init__(self) -> None:
        self._half = 0
        # Outcomes and failures, of the half before this one and of this one.
        self._older = (0, 0)
        self._newer = (0, 0)

    def note(self, now_s: float, *, failed: bool) -> None:
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
