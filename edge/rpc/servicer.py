"""The edge's gRPC service for programs: calls take the same path as over HTTP."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from edge.backends.auth import Principal, Scope
from edge.chat.edge_state import EdgeState
from edge.chat.endpoint import ChatEndpoint
from edge.chat.token_count import count_tokens
from edge.reports.receipt import get_request
from edge.reports.usage import get_usage
from edge.rpc.callers import identify, scope_of
from edge.rpc.ended import ended
from edge.rpc.message_turns import MessageTurns
from edge.rpc.relay import ProgramRelay
from edge.rpc.request_json import render_chat
from edge.rpc.rpc_chat import RpcChat
from edge.wire.body_reader import check_size
from edge.wire.responses import error_headers
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1 import chat_pb2_grpc
from services.chassis.errors import LegatoError, internal_error, unavailable
from services.chassis.http.asgi import WHEN_GONE, Headers, HttpScope
from services.chassis.http.request_id import new_request_id
from services.chassis.rpc.callers import Context
from services.chassis.rpc.methods import Handlers

AnswerT = TypeVar("AnswerT")
RequestT = TypeVar("RequestT", bound=Message)


class ChatServicer(chat_pb2_grpc.ChatServiceServicer):
    def __init__(self, edge: EdgeState, relay: ProgramRelay, turns: MessageTurns, stalled_reader_s: float) -> None:
        self._edge = edge
        self._relay = relay
        self._turns = turns
        self._endpoint = ChatEndpoint(edge)
        self._stalled_reader_s = stalled_reader_s
        self._running: set[asyncio.Task[None]] = set()

    def own_handlers(self) -> Handlers:
        """Returns the handlers. On the wire a single message is a stream of one. As a stream, a request is read when
        there is room for it, and not kept by gRPC while a chat runs; and its answer is sealed after it was sent."""
        chats = ((self.Complete, pb.CompleteResponse), (self.Stream, pb.StreamResponse))
        reads = (
            (self.CountTokens, pb.CountTokensResponse),
            (self.ListModels, pb.ListModelsResponse),
            (self.GetUsage, pb.GetUsageResponse),
            (self.GetRequest, pb.GetRequestResponse),
        )
        return {
            method.__name__: make(method, response_serializer=kind.SerializeToString)
            for make, methods in (
                (grpc.stream_stream_rpc_method_handler, chats),
                (grpc.stream_unary_rpc_method_handler, reads),
            )
            for method, kind in methods
        }

    async def Complete(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await self._chat(context, is_streamed=False)

    async def Stream(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        await self._chat(context, is_streamed=True)

    async def CountTokens(self, request_iterator: object, context: Context) -> pb.CountTokensResponse:
        async def count(principal: Principal, request: pb.CountTokensRequest) -> pb.CountTokensResponse:
            check_size(size_bytes := request.ByteSize())
            with self._edge.prompt_memory.hold(principal.account_id, size_bytes) as memory:
                body = await render_chat(request.chat, is_streamed=False)
                return pb.CountTokensResponse(prompt_tokens=await count_tokens(self._edge, principal, body, memory))

        return await self._read(context, Scope.SCOPE_INFERENCE, pb.CountTokensRequest, count)

    async def ListModels(self, request_iterator: object, context: Context) -> pb.ListModelsResponse:
        async def list_models(principal: Principal, request: pb.ListModelsRequest) -> pb.ListModelsResponse:
            return pb.ListModelsResponse(
                models=[
                    pb.Model(model_id=model.model_id, create_time=model.create_time, owner=model.owner)
                    for model in self._edge.models.usable(principal).values()
                ]
            )

        return await self._read(context, Scope.SCOPE_MODELS, pb.ListModelsRequest, list_models)

    async def GetUsage(self, request_iterator: object, context: Context) -> pb.GetUsageResponse:
        return await self._read(context, Scope.SCOPE_USAGE, pb.GetUsageRequest, partial(get_usage, self._edge))

    async def GetRequest(self, request_iterator: object, context: Context) -> pb.GetRequestResponse:
        async def get(principal: Principal, request: pb.GetRequestRequest) -> pb.GetRequestResponse:
            return await get_request(self._edge, principal, request.request_id)

        return await self._read(context, Scope.SCOPE_USAGE, pb.GetRequestRequest, get)

    async def _read(
        self,
        context: Context,
        needed: "Scope.ValueType",
        kind: type[RequestT],
        read: Callable[[Principal, RequestT], Awaitable[AnswerT]],
    ) -> AnswerT:
        """Returns what is read for whom the call is for, and takes the call from the rate limit."""
        request_id, edge = new_request_id(), self._edge
        tell(context, request_id, [])
        with self._call(context) as scope:
            try:
                principal = await identify(edge.principals, context, scope, needed)
                request = await self._turns.parsed(context, principal.account_id, kind)
                await edge.metering.admit(principal)
                return await read(principal, request)
            except LegatoError as error:
                edge.record_refusal(error, request_id)
                tell(context, request_id, error_headers(error))
                raise

    @contextlib.contextmanager
    def _call(self, context: Context) -> Iterator[HttpScope]:
        """Yields the scope of a call, and counts the call at its connection."""
        connection = self._relay.find(context.peer())
        if connection is None:
            # Without it nothing says where the call comes from.
            raise unavailable("The connection")
        connection.begin_call()
        try:
            yield scope_of(context, connection.client)
        except asyncio.CancelledError:
            connection.record_reset()
            raise
        finally:
            connection.end_call()

    def cancel_all(self) -> None:
        """Cancels all running chats; each tells its caller, and ends."""
        for task in self._running:
            task.cancel()

    async def _chat(self, context: Context, *, is_streamed: bool) -> None:
        with self._call(context) as scope:
            chat = RpcChat(self._edge, context, scope, self._turns, self._stalled_reader_s, is_streamed=is_streamed)
            await self._run(chat, context)

    async def _run(self, chat: RpcChat, context: Context) -> None:
        """Runs the chat in a task of its own, which decides itself what a caller that is gone means to it: gRPC cancels
        the task of the call."""
        task = asyncio.create_task(self._endpoint.serve(chat))
        self._running.add(task)
        task.add_done_callback(self._end)
        try:
            await ended(task)
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
            self._edge.record_refusal(error, chat.request_id, chat.api)
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
