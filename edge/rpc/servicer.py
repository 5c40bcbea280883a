"""The edge's gRPC service for programs: calls take the same path as over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc

from edge.backends.auth import Principal, Scope
from edge.chat.edge_state import EdgeState
from edge.chat.endpoint import ChatEndpoint
from edge.reports.receipt import get_request
from edge.reports.usage import get_usage
from edge.rpc.callers import identify, scope_of
from edge.rpc.rpc_chat import RpcChat
from edge.wire.responses import error_headers
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1 import chat_pb2_grpc
from services.chassis.errors import LegatoError, internal_error, unavailable
from services.chassis.http.asgi import WHEN_GONE, Headers
from services.chassis.http.request_id import new_request_id
from services.chassis.rpc.server import Context

# A caller that is killed resets its connection, which is noticed at once. One whose machine vanishes does not answer
# these pings, which are sent while a call runs and nothing is received. The last option is the time for the answer to a
# ping; the second, which is said to be that, is the time for anything to arrive.
KEEPALIVE_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
)

AnswerT = TypeVar("AnswerT")


class ChatServicer(chat_pb2_grpc.ChatServiceServicer):
    def __init__(self, edge: EdgeState, stalled_reader_s: float) -> None:
        self._edge = edge
        self._endpoint = ChatEndpoint(edge)
        self._stalled_reader_s = stalled_reader_s
        self._running: set[asyncio.Task[None]] = set()

    def own_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """Returns the handlers of chats. On the wire a single message is a stream of one. As a stream, a request is
        read when there is room for it, and not kept by gRPC while the answer runs; and the answer is sealed after it
        was sent."""
        return {
            method.__name__: grpc.stream_stream_rpc_method_handler(method, response_serializer=kind.SerializeToString)
            for method, kind in ((self.Complete, pb.CompleteResponse), (self.Stream, pb.StreamResponse))
        }

    async def Complete(self, request_iterator: Any, context: Context) -> None:  # type: ignore[override]
        await self._run(RpcChat(self._edge, context, self._stalled_reader_s, is_streamed=False), context)

    async def Stream(self, request_iterator: Any, context: Context) -> None:  # type: ignore[override]
        await self._run(RpcChat(self._edge, context, self._stalled_reader_s, is_streamed=True), context)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        async def list_models(principal: Principal) -> pb.ListModelsResponse:
            return pb.ListModelsResponse(
                models=[
                    pb.Model(model_id=model.model_id, create_time=model.create_time, owner=model.owner)
                    for model in self._edge.models.usable(principal).values()
                ]
            )

        return await self._read(context, Scope.SCOPE_MODELS, list_models)

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        return await self._read(context, Scope.SCOPE_USAGE, lambda principal: get_usage(self._edge, principal, request))

    async def GetRequest(self, request: pb.GetRequestRequest, context: Context) -> pb.GetRequestResponse:
        request_id = request.request_id
        return await self._read(
            context, Scope.SCOPE_USAGE, lambda principal: get_request(self._edge, principal, request_id)
        )

    async def _read(
        self, context: Context, needed: "Scope.ValueType", read: Callable[[Principal], Awaitable[AnswerT]]
    ) -> AnswerT:
        """Returns what is read for whom the call is for, and takes the call from the rate limit."""
        request_id, edge = new_request_id(), self._edge
        tell(context, request_id, [])
        try:
            principal = await identify(edge.principals, context, scope_of(context), needed)
            await edge.metering.admit(principal)
            return await read(principal)
        except LegatoError as error:
            edge.note_refusal(error, request_id)
            tell(context, request_id, error_headers(error))
            raise

    def cancel_all(self) -> None:
        """Cancels all running chats; each tells its caller, and ends."""
        for task in self._running:
            task.cancel()

    async def _run(self, chat: RpcChat, context: Context) -> None:
        """Runs the chat in a task of its own, which decides itself what a caller that is gone means to it: gRPC cancels
        the task of the call."""
        task = asyncio.create_task(self._endpoint.serve(chat))
        self._running.add(task)
        task.add_done_callback(self._end)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            chat.leave()
            raise
        finally:
            # It refers to the chat.
            chat.scope.pop(WHEN_GONE, None)
        if chat.reply is not None:
            await chat.reply.idle()
        reply, error = chat.reply, self._outcome(task, chat)
        if error is None:
            tell(context, chat.request_id, [] if reply is None else reply.headers)
        elif reply is not None and reply.error is error:
            tell(context, chat.request_id, [*error_headers(error), *reply.headers])
            raise error
        else:
            self._edge.note_refusal(error, chat.request_id)
            tell(context, chat.request_id, [*error_headers(error), *chat.rates])
            raise error

    def _outcome(self, task: "asyncio.Task[None]", chat: RpcChat) -> LegatoError | None:
        """Returns the error to tell; None if the chat was answered. Raises CancelledError if its caller is gone."""
        if chat.reply is not None and chat.reply.error is not None:
            return chat.reply.error
        if chat.is_gone:
            raise asyncio.CancelledError
        if task.cancelled():
            return unavailable("The service")
        error = task.exception()
        if error is None or isinstance(error, LegatoError):
            return error
        self._edge.log.failure("request.failed", error, request_id=chat.request_id)
        return internal_error()

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Retrieved, in case that its caller is gone.
            task.exception()


def tell(context: Context, request_id: str, headers: Headers) -> None:
    """Sets the metadata that is sent with the status of a call."""
    named = [(name.decode(), value.decode()) for name, value in headers]
    context.set_trailing_metadata((("x-request-id", request_id), *named))
