"""An observer of calls that keeps what it is told."""

from services.router.models.call_result import CallEnd, CallPlan, CallResult
from services.router.models.states import ClassObserver


class RecordedCalls(ClassObserver):
    def __init__(self) -> None:
        self.fallbacks: list[CallPlan] = []
        self.ended: list[tuple[CallPlan, CallResult]] = []

    def on_fallback(self, plan: CallPlan) -> None:
        self.fallbacks.append(plan)

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        self.ended.append((plan, result))

    @property
    def ends(self) -> list[tuple[str, CallEnd]]:
        """The provider that was called, and the end of the call."""
        return [(plan.target.provider, result.end) for plan, result in self.ended]
