"""The steps of one chat, one after the other: each begins where the last one ended."""

from edge.metrics import Step
from services.chassis.clock import Clock
from services.chassis.tracing import Span


class Laps:
    __slots__ = ("_clock", "_lap_began_s", "began_s", "span")

    def __init__(self, clock: Clock, span: Span | None = None) -> None:
        """`span` is there if the chat is traced; then the steps are its children."""
        self._clock = clock
        self.began_s = self._lap_began_s = clock.elapsed_s()
        self.span = span

    def end(self, step: Step) -> float:
        """Says when that was."""
        now_s = self._clock.elapsed_s()
        step.durations_s.observe(now_s - self._lap_began_s)
        if self.span is not None:
            self.span.child(step.name, began_s=self._lap_began_s).end(now_s)
        self._lap_began_s = now_s
        return now_s
