"""Traces a request through every process, as OpenTelemetry spans.

A trace begins at the edge, which adopts the trace id that a client sends, and samples by the ratio. The other processes
follow that decision: a call with a `traceparent` is recorded. Without tracing there is no span at all, so a request
costs one look at a variable, and nothing of OpenTelemetry is imported.

No message content can be in a span: its attributes have names from the list below, all of them for numbers, for our own
constants, or for the name of a model. `otlp.py` exports the spans.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from services.chassis.timing.deadlines import Clock

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context

Value = str | int | float | bool | list[str]

ALLOWED_ATTRIBUTES: Final = frozenset(
    {
        "error.type", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.max_tokens",
        "gen_ai.request.model", "gen_ai.response.finish_reasons", "gen_ai.response.model",
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens", "gen_ai.usage.reasoning.output_tokens", "http.request.method",
        "http.response.status_code", "legato.attempt", "legato.class", "legato.end", "legato.provider",
        "legato.request_id", "legato.stream", "rpc.method", "rpc.service", "rpc.system",
    }
)  # fmt: skip


class Span:
    """A recorded part of a request. Its name and attributes are given to OpenTelemetry when it ends."""

    __slots__ = ("_epoch_ns", "_recorded", "_tracer", "attributes", "name", "span_id", "trace_id")

    def __init__(self, tracer: "Tracer", name: str, recorded: "trace.Span", epoch_ns: int) -> None:
        """Wraps a span; `epoch_ns` is when the tracer's clock was at zero, in nanoseconds since 1970."""
        self._tracer = tracer
        self._recorded = recorded
        self._epoch_ns = epoch_ns
        self.name = name
        self.attributes: dict[str, Value] = {}
        context = recorded.get_span_context()
        self.trace_id = f"{context.trace_id:032x}"
        self.span_id = f"{context.span_id:016x}"

    @property
    def traceparent(self) -> str:
        """The header for calls made on its behalf."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def child(self, name: str, began_s: float | None = None, *, is_client: bool = False) -> "Span":
        """Creates a child span that begins now, or at `began_s`; a client's, if it is a call to another service."""
        recorded = self._tracer.start_child(self._recorded, name, self._at_ns(began_s), is_client=is_client)
        return Span(self._tracer, name, recorded, self._epoch_ns)

    def end(self, ended_s: float | None = None) -> None:
        """Ends the span now, or at `ended_s`. Further calls have no effect."""
        if not self._recorded.is_recording():
            return
        if not self.attributes.keys() <= ALLOWED_ATTRIBUTES:
            unknown = sorted(self.attributes.keys() - ALLOWED_ATTRIBUTES)
            raise ValueError(f"not an attribute that a span may have: {unknown}")
        self._recorded.update_name(self.name)
        self._recorded.set_attributes(self.attributes)
        if "error.type" in self.attributes:
            self._tracer.mark_failed(self._recorded)
        self._recorded.end(self._at_ns(ended_s))

    def _at_ns(self, elapsed_s: float | None) -> int:
        return self._epoch_ns + round((self._tracer.clock.elapsed_s() if elapsed_s is None else elapsed_s) * 1e9)


class Tracer:
    def __init__(self, clock: Clock, provider: "trace.TracerProvider") -> None:
        """A factory of spans; `provider` is OpenTelemetry's."""
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.clock = clock
        self._trace = trace
        self._tracer = provider.get_tracer("legato")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, traceparent: str = "") -> Span | None:
        """Begins a span for a client's request, which may bring its own trace. None: it is not sampled."""
        return self._begin(name, self._propagator.extract({"traceparent": traceparent}))

    def resume(self, name: str, traceparent: str) -> Span | None:
        """Begins a span for a call of another process, which has decided to record it."""
        context = self._propagator.extract({"traceparent": traceparent})
        is_traced = self._trace.get_current_span(context).get_span_context().is_valid
        return self._begin(name, context) if is_traced else None

    def _begin(self, name: str, context: "Context") -> Span | None:
        elapsed_s = self.clock.elapsed_s()
        # A float holds the time since 1970 to the microsecond only.
        now_ns = round(self.clock.now().timestamp() * 1e6) * 1000
        recorded = self._tracer.start_span(name, context, self._trace.SpanKind.SERVER, start_time=now_ns)
        return Span(self, name, recorded, now_ns - round(elapsed_s * 1e9)) if recorded.is_recording() else None

    def start_child(self, parent: "trace.Span", name: str, began_ns: int, *, is_client: bool) -> "trace.Span":
        kind = self._trace.SpanKind.CLIENT if is_client else self._trace.SpanKind.INTERNAL
        return self._tracer.start_span(name, self._trace.set_span_in_context(parent), kind, start_time=began_ns)

    def mark_failed(self, recorded: "trace.Span") -> None:
        recorded.set_status(self._trace.StatusCode.ERROR)


_current: ContextVar[Span | None] = ContextVar("current_span", default=None)


# Returns the span of the request that this task works on, if it is recorded. A function of C: every call asks.
current_span: Callable[[], Span | None] = _current.get


def work_on(span: Span) -> None:
    """Makes the span current for this task and the tasks that it creates."""
    _current.set(span)
