"""Tracers whose spans tests can look at."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanKind

from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import Clock


class RecordedSpan(NamedTuple):
    name: str
    kind: SpanKind
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, Any]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


class _Recorder(SpanProcessor):
    def __init__(self, spans: list[RecordedSpan]) -> None:
        self._spans = spans

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self._spans.append(
            RecordedSpan(
                span.name,
                span.kind,
                f"{span.context.trace_id:032x}",
                f"{span.context.span_id:016x}",
                f"{span.parent.span_id:016x}" if span.parent else "",
                span.start_time or 0,
                span.end_time or 0,
                dict(span.attributes or {}),
            )
        )


def recording_tracer(clock: Clock, spans: list[RecordedSpan], ratio: float = 1.0) -> Tracer:
    """Records each span that ends."""
    provider = TracerProvider(TraceIdRatioBased(ratio), Resource.get_empty(), shutdown_on_exit=False)
    provider.add_span_processor(_Recorder(spans))
    return Tracer(clock, provider)
