"""Traces a request through every process, as OpenTelemetry spans.

A trace begins at the edge, which adopts the trace id that a client sends, and samples by the ratio. The other processes
follow that decision: a call with a `traceparent` is recorded. An unsampled request has no span at all, so it costs one
look at a variable.

No message content can be in a span: its attributes have names from the list below, all of them for numbers or for our
own constants. `otlp.py` exports the spans.
"""

import os
import re
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Final

from services.chassis.timing.deadlines import Clock

Value = str | int | float | bool | list[str]

ALLOWED_ATTRIBUTES: Final = frozenset(
    {
        "error.type", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.max_tokens",
        "gen_ai.request.model", "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens", "http.request.method", "http.response.status_code", "legato.attempt",
        "legato.class", "legato.end", "legato.request_id", "legato.stream", "rpc.method", "rpc.service", "rpc.system",
    }
)  # fmt: skip

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?", re.ASCII)
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
# The last 56 bits of any trace id are random, and decide whether it is sampled.
_RANDOM_DIGITS: Final = 14


class SpanKind(IntEnum):
    """OpenTelemetry's span kinds."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class Span:
    __slots__ = (
        "_tracer", "attributes", "began_s", "ended_s", "epoch_ns", "kind", "name", "parent_id", "span_id", "trace_id",
    )  # fmt: skip

    def __init__(
        self, tracer: "Tracer", name: str, kind: SpanKind, trace_id: str, parent_id: str, began_s: float, epoch_ns: int
    ) -> None:
        """A span; `epoch_ns` is when the clock that counts `began_s` was at zero, in nanoseconds since 1970."""
        self._tracer = tracer
        self.name = name
        self.kind = kind
        self.trace_id = trace_id
        self.span_id = os.urandom(8).hex()
        # Empty for the root span.
        self.parent_id = parent_id
        self.began_s = began_s
        self.ended_s: float | None = None
        self.epoch_ns = epoch_ns
        self.attributes: dict[str, Value] = {}

    @property
    def traceparent(self) -> str:
        """The header for calls made on its behalf."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL, began_s: float | None = None) -> "Span":
        """Creates a child span that begins now, or at `began_s`."""
        began_s = self._tracer.clock.elapsed_s() if began_s is None else began_s
        return Span(self._tracer, name, kind, self.trace_id, self.span_id, began_s, self.epoch_ns)

    def end(self, ended_s: float | None = None) -> None:
        """Ends the span now, or at `ended_s`. Further calls have no effect."""
        if self.ended_s is None:
            self.ended_s = self._tracer.clock.elapsed_s() if ended_s is None else ended_s
            if not self.attributes.keys() <= ALLOWED_ATTRIBUTES:
                unknown = sorted(self.attributes.keys() - ALLOWED_ATTRIBUTES)
                raise ValueError(f"not an attribute that a span may have: {unknown}")
            self._tracer.export(self)


class Tracer:
    def __init__(self, clock: Clock, export: Callable[[Span], None], ratio: float = 1.0) -> None:
        """A factory of spans; `export` receives each span when it has ended."""
        self.clock = clock
        self.export = export
        self._most = ratio * 16**_RANDOM_DIGITS

    def begin(self, name: str, traceparent: str = "") -> Span | None:
        """Begins a span for a client's request, which may bring its own trace. None: it is not sampled."""
        trace_id, parent_id = read_traceparent(traceparent) or (os.urandom(16).hex(), "")
        if int(trace_id[-_RANDOM_DIGITS:], 16) >= self._most:
            return None
        return self._server_span(name, trace_id, parent_id)

    def resume(self, name: str, traceparent: str) -> Span | None:
        """Begins a span for a call of another process, which has decided to record it."""
        found = read_traceparent(traceparent)
        return None if found is None else self._server_span(name, *found)

    def _server_span(self, name: str, trace_id: str, parent_id: str) -> Span:
        elapsed_s = self.clock.elapsed_s()
        # A float holds the time since 1970 to the microsecond only.
        epoch_ns = round(self.clock.now().timestamp() * 1e6) * 1000 - round(elapsed_s * 1e9)
        return Span(self, name, SpanKind.SERVER, trace_id, parent_id, elapsed_s, epoch_ns)


_current: ContextVar[Span | None] = ContextVar("current_span", default=None)


# Returns the span of the request that this task works on, if it is recorded. A function of C: every call asks.
current_span: Callable[[], Span | None] = _current.get


def work_on(span: Span) -> None:
    """Makes the span current for this task and the tasks that it creates."""
    _current.set(span)


def read_traceparent(header: str) -> tuple[str, str] | None:
    """Returns the trace id and parent id of a W3C `traceparent`; None if it is invalid."""
    match = _TRACEPARENT.fullmatch(header) if header else None
    if match is None or match[1] == _NO_TRACE or match[2] == _NO_SPAN:
        return None
    return match[1], match[2]
