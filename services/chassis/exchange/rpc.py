"""A conversation as an ordinary RPC of its own, seen from both of its ends.

For what is too big to share a stream, and for callers who keep no exchange. HTTP/2 does the flow control."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from services.chassis.exchange.client import ExchangeBroken
from services.chassis.exchange.methods import StreamMethod
from services.chassis.exchange.spans import traced
from services.chassis.rpc.channel import from_rpc_error, was_lost
from services.chassis.telemetry.tracing import Span

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class RpcCall(Generic[ResponseT]):
    """The asking end, for one reader."""

    def __init__(self, service: str, stream: "grpc.aio.StreamStreamCall[Any, ResponseT]", request: Message) -> None:
        self._service = service
        self._stream = stream
        # By the iterator: `stream.read()` gives nothing more once a write has failed, as it does where the other side
        # has ended, though all is there.
        self._responses = cast("AsyncGenerator[ResponseT, None]", aiter(stream))
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._outbox.put_nowait(request)
        self._writer = asyncio.create_task(_write_all(stream, self._outbox))

    async def receive(self) -> ResponseT | None:
        try:
            response = await anext(self._responses, None)
        except grpc.RpcError as error:
            if was_lost(error):
                raise ExchangeBroken(self._service) from None
            raise from_rpc_error(error, self._service) from None
        if response is None:
            self._writer.cancel()
        return response

    def send(self, request: Message) -> None:
        self._outbox.put_nowait(request)

    def cancel(self) -> None:
        self._writer.cancel()
        self._stream.cancel()
        # Left where it is, it would go round in a circle with the stream, and keep what it gave last.
        self._closing = asyncio.ensure_future(self._responses.aclose())


async def _write_all(stream: "grpc.aio.StreamStreamCall[Any, Any]", outbox: asyncio.Queue[Message]) -> None:
    """No method: when it is cancelled its task knows where it was, and must not know the call that knows the task."""
    try:
        while True:
            await stream.write(await outbox.get())
    except (grpc.RpcError, asyncio.InvalidStateError):
        # The reader meets the same failure, and tells it.
        pass


async def serve_stream(
    method: StreamMethod[RequestT, ResponseT],
    context: "grpc.aio.ServicerContext[RequestT, ResponseT]",
    span: Span | None = None,
) -> AsyncGenerator[ResponseT, None]:
    """The answering end: the method's handler serves it as it would on an exchange."""
    conversation = _RpcCallStream(context)
    serve = method.serve(conversation)
    serving = asyncio.ensure_future(serve if span is None else traced(span, serve))
    serving.add_done_callback(conversation.close)
    try:
        while (response := await conversation.responses.get()) is not None:
            yield response
            conversation.written.set()
        await serving
    finally:
        serving.cancel()


class _RpcCallStream(Generic[RequestT, ResponseT]):
    def __init__(self, context: "grpc.aio.ServicerContext[RequestT, ResponseT]") -> None:
        self.responses: asyncio.Queue[ResponseT | None] = asyncio.Queue()
        self.written = asyncio.Event()
        self._context = context

    def close(self, serving: "asyncio.Future[None]") -> None:
        if not serving.cancelled():
            # Looked at here, because a caller who left never will.
            serving.exception()
        self.responses.put_nowait(None)

    async def receive(self) -> RequestT:
        # Not by the iterator that a handler is given: it goes round in a circle with the last request that it gave,
        # and so keeps a prompt of megabytes until the collector of garbage comes.
        request = cast(Any, await self._context.read())
        if request is grpc.aio.EOF:
            await asyncio.get_running_loop().create_future()
        return cast(RequestT, request)

    async def send(self, response: ResponseT) -> None:
        self.written.clear()
        self.responses.put_nowait(response)
        await self.written.wait()
