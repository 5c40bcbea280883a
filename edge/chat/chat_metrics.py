"""The metrics of chats: their outcomes, tokens and durations, and the steps that each of them takes.

To its clients the edge is the model server, so OpenTelemetry's server metrics (`gen_ai_server_…`) are kept by class.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple

from legato_protos.metering.v1 import metering_pb2 as metering_pb
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_UNSPECIFIED, ChatApi
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Headers
from services.chassis.telemetry.metrics import (
    FIRST_TOKEN_BOUNDS_S,
    OUTPUT_TOKEN_BOUNDS_S,
    REQUEST_BOUNDS_S,
    STEP_BOUNDS_S,
    Histogram,
    Registry,
)
from services.chassis.telemetry.tracing import Span, Tracer, work_on
from services.chassis.timing.deadlines import Clock

SERVER_LABELS: Final = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
OPERATION: Final = "chat"
PROVIDER: Final = "legato"

# The ways in which a chat may end, as they are logged.
OUTCOMES: Final = {
    number: name.removeprefix("END_").lower()
    for name, number in metering_pb.End.items()
    if number != metering_pb.END_UNSPECIFIED
}
# What chats come by. What is no chat, such as a list of models, has none.
APIS: Final = {
    number: "" if number == CHAT_API_UNSPECIFIED else name.removeprefix("CHAT_API_").lower()
    for name, number in ChatApi.items()
}
SERVED: Final = (metering_pb.END_COMPLETE, metering_pb.END_CREDIT_SPENT)


class Step(NamedTuple):
    """A step of a chat: its name, and a histogram of its durations."""

    name: str
    durations_s: Histogram


class ChatMetrics:
    def __init__(self, registry: Registry) -> None:
        self._chats = registry.counts(
            "legato_chats", "Admitted chats, by class, outcome and API.", "class", "outcome", "api"
        )
        self._refusals = registry.counts(
            "legato_refusals",
            "Errors sent to clients, as a response or within a stream, by reason and API.",
            "reason",
            "api",
        )
        steps = registry.histograms(
            "legato_step_duration_seconds", "Duration of each step of a chat.", STEP_BOUNDS_S, "step"
        )
        self.auth, self.rate, self.body, self.reserve, self.first_piece, self.relay = (
            Step(name, steps[name,]) for name in ("auth", "rate", "body", "reserve", "first_piece", "relay")
        )
        self._durations_s = registry.histograms(
            "gen_ai_server_request_duration_seconds",
            "Duration of served chats, from arrival to end.",
            REQUEST_BOUNDS_S,
            *SERVER_LABELS,
        )
        self._first_tokens_s = registry.histograms(
            "gen_ai_server_time_to_first_token_seconds",
            "Time from a chat's arrival to the first piece of its answer.",
            FIRST_TOKEN_BOUNDS_S,
            *SERVER_LABELS,
        )
        self._output_tokens_s = registry.histograms(
            "gen_ai_server_time_per_output_token_seconds",
            "Time per output token after the first, of served chats.",
            OUTPUT_TOKEN_BOUNDS_S,
            *SERVER_LABELS,
        )
        self._tokens = registry.counts(
            "legato_tokens", "Charged tokens, by class, type and API.", "class", "gen_ai_token_type", "api"
        )

    def refused(self, reason: Reason, api: "ChatApi.ValueType" = CHAT_API_UNSPECIFIED) -> None:
        self._refusals[reason, APIS[api]] += 1

    def ended(
        self,
        class_id: str,
        api: "ChatApi.ValueType",
        end: "metering_pb.End.ValueType",
        took_s: float,
        first_token_s: float | None,
        charged: Usage,
        trace_id: str = "",
    ) -> None:
        """Records a chat. `first_token_s` counts from the arrival; None if there was no token. `trace_id` is empty if
        it is not traced."""
        self._chats[class_id, OUTCOMES[end], APIS[api]] += 1
        if first_token_s is None:
            return
        labels = (OPERATION, PROVIDER, class_id)
        durations_s, output_tokens_s = self._durations_s[labels], self._output_tokens_s[labels]
        self._first_tokens_s[labels].observe(first_token_s)
        self._tokens[class_id, "input", APIS[api]] += charged.prompt_tokens
        self._tokens[class_id, "output", APIS[api]] += charged.completion_tokens
        if end in SERVED:
            durations_s.observe(took_s)
            if charged.completion_tokens > 1:
                output_tokens_s.observe((took_s - first_token_s) / (charged.completion_tokens - 1))
        if trace_id:
            self._first_tokens_s[labels].record_trace(first_token_s, trace_id)
            if end in SERVED:
                durations_s.record_trace(took_s, trace_id)


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
            step.durations_s.record_trace(now_s - self._step_began_s, self.span.trace_id)
            self.span.child(step.name, began_s=self._step_began_s).end(now_s)
        self._step_began_s = now_s
        return now_s

    def __enter__(self) -> "StepTimer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.span is not None:
            if isinstance(error, LegatoError):
                self.refused(error)
            elif isinstance(error, Exception):
                self.span.attributes["error.type"] = Reason.INTERNAL
            self.span.end()

    def refused(self, error: LegatoError) -> None:
        if self.span is not None:
            self.span.attributes["error.type"] = error.reason
            if "http.request.method" in self.span.attributes:
                self.span.attributes["http.response.status_code"] = error.wire.http_status


def begin_span(tracer: Tracer | None, headers: Headers, request_id: str, attributes: Mapping[str, str]) -> Span | None:
    """Returns the span of a chat that is traced, as part of its client's trace."""
    if tracer is None:
        return None
    traceparent = next((value for name, value in headers if name == b"traceparent"), b"")
    span = tracer.begin(OPERATION, traceparent.decode("latin-1"))
    if span is not None:
        work_on(span)
        span.attributes["gen_ai.operation.name"] = OPERATION
        span.attributes["gen_ai.provider.name"] = PROVIDER
        span.attributes |= attributes
        span.attributes["legato.request_id"] = request_id
    return span
