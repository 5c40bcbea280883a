"""Spans of calls that carry a trace, on the server side."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from services.chassis.errors import LegatoError
from services.chassis.telemetry.tracing import Span, Tracer, work_on


class CallSpans:
    def __init__(self, tracer: Tracer, service: str) -> None:
        """Creates spans for `service`, a full name."""
        self._tracer = tracer
        self._service = service

    def begin(self, method: str, traceparent: str) -> Span | None:
        span = self._tracer.resume(f"{self._service}/{method}", traceparent)
        if span is not None:
            span.attributes = {"rpc.system": "grpc", "rpc.service": self._service, "rpc.method": method}
        return span

    def begin_rpc(self, method: str, context: Any) -> Span | None:
        """Begins the span of an ordinary RPC; `context` is gRPC's."""
        found = next((value for name, value in context.invocation_metadata() if name == "traceparent"), "")
        return self.begin(method, found) if found else None


async def traced(span: Span, serving: Awaitable[None]) -> None:
    work_on(span)
    try:
        await serving
    except LegatoError as error:
        span.attributes["error.type"] = error.reason
        raise
    finally:
        span.end()


def end_with(span: Span, answer: "asyncio.Future[Any]") -> None:
    error = None if answer.cancelled() else answer.exception()
    if isinstance(error, LegatoError):
        span.attributes["error.type"] = error.reason
    span.end()
