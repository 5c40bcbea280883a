"""The methods of a service, and a call's interface to its handler."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context
from services.chassis.telemetry.tracing import Span, Tracer, work_on

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
RequestT_co = TypeVar("RequestT_co", bound=Message, covariant=True)
ResponseT_contra = TypeVar("ResponseT_contra", bound=Message, contravariant=True)


class Encodable(Protocol):
    """A request: a message of protobuf, or what encodes itself as one."""

    def SerializeToString(self) -> bytes: ...


class CallStream(Protocol[RequestT_co, ResponseT_contra]):
    """One call as its handler sees it, on either transport. If the caller leaves, the handler is cancelled."""

    async def receive(self) -> RequestT_co:
        """Returns the first request, then later ones. After the last it waits until the caller leaves."""
        ...

    async def send(self, response: ResponseT_contra) -> None:
        """Sends a response, with backpressure from the caller."""
        ...

    @property
    def has_room(self) -> bool:
        """Returns whether a response can be sent without waiting for the caller."""
        ...

    def send_soon(self, response: ResponseT_contra) -> None:
        """Sends a response without waiting; only while there is room. It may be delayed a few milliseconds, to be sent
        together with others."""
        ...

    @property
    def send_packed(self) -> Callable[[bytes], None] | None:
        """Sends a response in its packed form, like `send_soon`. None if the transport has no such form."""
        ...


@dataclass(frozen=True, slots=True)
class UnaryMethod(Generic[RequestT, ResponseT]):
    """A unary method. If the caller leaves, the answer is computed all the same."""

    request_type: type[RequestT]
    answer: Callable[[RequestT], Awaitable[ResponseT]]


@dataclass(frozen=True, slots=True)
class StreamMethod(Generic[RequestT, ResponseT]):
    request_type: type[RequestT]
    serve: Callable[[CallStream[RequestT, ResponseT]], Awaitable[None]]


Methods = Mapping[str, UnaryMethod[Any, Any] | StreamMethod[Any, Any]]


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

    def begin_rpc(self, method: str, context: Context) -> Span | None:
        """Begins the span of an ordinary RPC; `context` is gRPC's."""
        metadata = context.invocation_metadata() or ()
        found = next((value for name, value in metadata if name == "traceparent" and isinstance(value, str)), "")
        return self.begin(method, found) if found else None


async def traced(span: Span, serving: Awaitable[None]) -> None:
    work_on(span)
    try:
        await serving
    except Exception as error:
        span.attributes["error.type"] = _reason_of(error)
        raise
    finally:
        span.end()


def end_with(span: Span, answer: "asyncio.Future[object]") -> None:
    error = None if answer.cancelled() else answer.exception()
    if error is not None:
        span.attributes["error.type"] = _reason_of(error)
    span.end()


def _reason_of(error: BaseException) -> Reason:
    return error.reason if isinstance(error, LegatoError) else Reason.INTERNAL
