"""Streaming calls as separate RPCs, on the client and the server side.

They are for payloads too big to share a stream, and for callers without an exchange. HTTP/2 does the flow control."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, cast

import grpc
import grpc.aio

from services.chassis.exchange.client import ExchangeBroken
from services.chassis.exchange.methods import Encodable, RequestT, ResponseT, StreamMethod, traced
from services.chassis.rpc.channel import from_rpc_error, was_lost
from services.chassis.telemetry.tracing import Span


class RpcCall(Generic[ResponseT]):
    """The client side of such a call, for one reader."""

    def __init__(
        self,
        service: str,
        stream: "grpc.aio.StreamStreamCall[Any, ResponseT]",
        request: Encodable,
        openings: asyncio.Semaphore | None = None,
    ) -> None:
        """Sends the opening `request`, in its turn if `openings` limits how many are sent at once. It is not kept."""
        self._service = service
        self._stream = stream
        # Read by the iterator: after a failed write, as when the other side has ended, `stream.read()` returns nothing,
        # even if messages have arrived.
        self._responses = cast("AsyncGenerator[ResponseT, None]", aiter(stream))
        self._outbox: asyncio.Queue[Encodable] = asyncio.Queue()
        self._outbox.put_nowait(request)
        self._writer = asyncio.create_task(_write_all(stream, self._outbox, openings or nullcontext()))

    async def receive(self) -> ResponseT | None:
        """Returns the next response, or None at the end."""
        try:
            response = await anext(self._responses, None)
        except grpc.RpcError as error:
            if was_lost(error):
                raise ExchangeBroken(self._service) from None
            raise from_rpc_error(error, self._service) from None
        if response is None:
            self._writer.cancel()
        return response

    def send(self, request: Encodable) -> None:
        self._outbox.put_nowait(request)

    def cancel(self) -> None:
        self._writer.cancel()
        self._stream.cancel()
        # Unclosed, it would stay in a reference cycle with the stream, and keep the last response.
        self._closing = asyncio.ensure_future(self._responses.aclose())


async def _write_all(
    stream: "grpc.aio.StreamStreamCall[Any, Any]",
    outbox: asyncio.Queue[Encodable],
    turn: AbstractAsyncContextManager[None],
) -> None:
    """Writes queued requests, the first in its turn. No method: a cancelled task's frame must not refer to the call,
    which refers to the task."""
    try:
        async with turn:
            await stream.write(await outbox.get())
        while True:
            await stream.write(await outbox.get())
    except (grpc.RpcError, asyncio.InvalidStateError):
        # The reader gets the same failure, and reports it.
        pass


async def serve_stream(
    method: StreamMethod[RequestT, ResponseT],
    context: "grpc.aio.ServicerContext[RequestT, ResponseT]",
    span: Span | None = None,
) -> AsyncGenerator[ResponseT, None]:
    """Serves an RPC on the server side with the handler of the exchange's method."""
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
            # Retrieved here, because a caller who left never will.
            serving.exception()
        self.responses.put_nowait(None)

    async def receive(self) -> RequestT:
        # Not by the handler's iterator: it forms a reference cycle with the last request, and so keeps a prompt of
        # megabytes until the garbage collector runs.
        request = cast(Any, await self._context.read())
        if request is grpc.aio.EOF:
            await asyncio.get_running_loop().create_future()
        return cast(RequestT, request)

    async def send(self, response: ResponseT) -> None:
        self.written.clear()
        self.responses.put_nowait(response)
        await self.written.wait()

    @property
    def has_room(self) -> bool:
        return self.responses.empty()

    send_packed = None

    def send_soon(self, response: ResponseT) -> None:
        self.responses.put_nowait(response)
