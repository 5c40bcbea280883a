"""Times the steps of one chat: each begins when the last one ended."""

from edge.metrics import OPERATION, PROVIDER, Step
from edge.wire.asgi import Headers
from services.chassis.errors import LegatoError
from services.chassis.telemetry.tracing import Span, Tracer, work_on
from services.chassis.timing.clock import Clock


class StepTimer:
    __slots__ = ("_clock", "_step_began_s", "began_s", "span")

    def __init__(self, clock: Clock, span: Span | None = None) -> None:
        """Takes the span of a traced chat; the steps are its children."""
        self._clock = clock
        self.began_s = self._step_began_s = clock.elapsed_s()
        self.span = span

    def end_step(self, step: Step) -> float:
        """Ends a step; returns when."""
        now_s = self._clock.elapsed_s()
        step.durations_s.observe(now_s - self._step_began_s)
        if self.span is not None:
            self.span.child(step.name, began_s=self._step_began_s).end(now_s)
        self._step_began_s = now_s
        return now_s

    def refused(self, error: LegatoError) -> None:
        if self.span is not None:
            self.span.attributes["error.type"] = error.reason
            self.span.attributes["http.response.status_code"] = error.wire.http_status

    def close(self) -> None:
        if self.span is not None:
            self.span.end()


def traced_step_timer(clock: Clock, tracer: Tracer, headers: Headers, request_id: str) -> StepTimer:
    """Returns the timer of a chat that may be traced, as part of its client's trace."""
    traceparent = next((value for name, value in headers if name == b"traceparent"), b"")
    span = tracer.begin(OPERATION, traceparent.decode("latin-1"))
    if span is not None:
        work_on(span)
        span.attributes["gen_ai.operation.name"] = OPERATION
        span.attributes["gen_ai.provider.name"] = PROVIDER
        span.attributes["http.request.method"] = "POST"
        span.attributes["legato.request_id"] = request_id
    return StepTimer(clock, span)
