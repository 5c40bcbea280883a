"""Exports spans to a collector, by OTLP over HTTP, with OpenTelemetry's SDK.

A thread of its own sends them in batches. A slow or unavailable collector costs spans, which are counted, and nothing
else: no request ever waits for it, and the queue is bounded. The variables `OTEL_*` of the SDK and its exporter work as
OpenTelemetry describes them. This module is imported only where tracing is on.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import Clock

PATH: Final = "/v1/traces"
QUEUE_MOST: Final = 4096
# How long a process that ends waits for its last spans to be taken.
CLOSE_WITHIN_S: Final = 5.0


class CountedExporter(SpanExporter):
    """Counts what was sent and what was not, and logs an outage once, not once a second."""

    def __init__(self, exporter: SpanExporter, log: Log) -> None:
        self._exporter = exporter
        self._log = log
        self._is_away = False
        self.received = 0
        self.sent = 0
        self.dropped = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.received += len(spans)
        result = self._exporter.export(spans)
        is_taken = result is SpanExportResult.SUCCESS
        if is_taken:
            self.sent += len(spans)
        else:
            self.dropped += len(spans)
            if not self._is_away:
                self._log.warning("collector.unreachable")
        self._is_away = not is_taken
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class CountedProcessor(BatchSpanProcessor):
    """Counts what the queue has no room for."""

    def __init__(self, exporter: CountedExporter) -> None:
        self._most = int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE) or QUEUE_MOST)
        self._exporter = exporter
        self._ended = 0
        self._displaced = 0
        super().__init__(exporter, max_queue_size=self._most)

    @property
    def dropped(self) -> int:
        return self._displaced + self._exporter.dropped

    def on_end(self, span: ReadableSpan) -> None:
        if self._ended - self._displaced - self._exporter.received >= self._most:
            self._displaced += 1
        self._ended += 1
        super().on_end(span)


@contextlib.contextmanager
def exporting(
    endpoint: str, service: str, clock: Clock, log: Log, registry: Registry, ratio: float = 1.0
) -> Iterator[Tracer]:
    """Exports to the collector at `endpoint`, an address without the path; if it is empty, to the one that `OTEL_*`
    names."""
    # It logs each failure; we log each outage.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = CountedExporter(OTLPSpanExporter(endpoint.rstrip("/") + PATH if endpoint else None), log)
    processor = CountedProcessor(exporter)
    given = os.environ
    provider = TracerProvider(
        sampler=None if given.get(OTEL_TRACES_SAMPLER) else TraceIdRatioBased(ratio),
        resource=Resource.create({} if given.get(OTEL_SERVICE_NAME) else {SERVICE_NAME: f"legato-{service}"}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(processor)
    registry.counter(
        "legato_spans",
        "Spans sent to the collector, and spans dropped.",
        lambda: {"sent": exporter.sent, "dropped": processor.dropped},
        "outcome",
    )
    try:
        yield Tracer(clock, provider)
    finally:
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_WITHIN_S)
