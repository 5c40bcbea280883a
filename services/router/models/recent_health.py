"""Counts the calls to a model in the last five minutes, and how many of them failed.

Five minutes are a ring of short periods: the oldest leaves as a whole, so up to one period of them is missing.
"""

from typing import Final

from services.chassis.timing.deadlines import Clock
from services.router.models.call_result import CallEnd, CallObserver, CallPlan, CallResult

PERIOD_S: Final = 10.0
PERIODS: Final = 30
# As the circuit breaker counts them.
FAILED: Final = (CallEnd.FAILED, CallEnd.CUT)


class _Period:
    __slots__ = ("calls", "failures", "number")

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self.failures = 0


class RecentHealth(CallObserver):
    """The counts of one model. A call counts when it is over, and not if nothing was learned of the model."""

    __slots__ = ("_clock", "_periods")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The place of a period is its number, modulo the length.
        self._periods = [_Period() for _ in range(PERIODS)]

    @property
    def recent_calls(self) -> int:
        return sum(period.calls for period in self._recent())

    @property
    def recent_failures(self) -> int:
        return sum(period.failures for period in self._recent())

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        if result.end is CallEnd.GIVEN_UP:
            return
        number = int(self._clock.elapsed_s() / PERIOD_S)
        period = self._periods[number % PERIODS]
        if period.number != number:
            period.begin(number)
        period.calls += 1
        period.failures += result.end in FAILED

    def _recent(self) -> list[_Period]:
        # A period that was not used yet has the number -1.
        first = max(0, int(self._clock.elapsed_s() / PERIOD_S) - PERIODS + 1)
        return [period for period in self._periods if period.number >= first]
