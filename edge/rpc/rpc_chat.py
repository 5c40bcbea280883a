"""A chat that comes in by gRPC."""

import asyncio
from collections.abc import Callable
from typing import Final

from edge.access.principals import Principals
from edge.backends.auth import Principal
from edge.billing.hold import ChatHold
from edge.chat.edge_state import EdgeState
from edge.chat.incoming import INFERENCE, SMALL_BODY_BYTES, IncomingChat
from edge.rpc.callers import identify
from edge.rpc.message_turns import MessageTurns, parse
from edge.rpc.replies import AnsweredCall, RpcReply, StreamedReply, WholeReply
from edge.rpc.request_json import render_chat
from edge.rpc.unknown_fields import name_unknown_fields
from edge.wire.body_reader import ClientGone, check_size
from edge.wire.chat_request import ChatBody
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_GRPC
from services.chassis.http.asgi import WHEN_GONE, Headers, HttpScope
from services.chassis.http.request_id import new_request_id
from services.chassis.load.fair_budget import BudgetShare
from services.chassis.rpc.callers import Context

_SPAN: Final = {"rpc.system": "grpc", "rpc.service": pb.DESCRIPTOR.services_by_name["ChatService"].full_name}
_COMPLETE_SPAN, _STREAM_SPAN = _SPAN | {"rpc.method": "Complete"}, _SPAN | {"rpc.method": "Stream"}


class RpcChat(IncomingChat):
    """One call of Complete or Stream. Its message is read when there is room for it, and not kept by gRPC."""

    api = CHAT_API_GRPC

    def __init__(
        self,
        edge: EdgeState,
        context: Context,
        scope: HttpScope,
        turns: MessageTurns,
        stalled_reader_s: float,
        *,
        is_streamed: bool,
    ) -> None:
        super().__init__(new_request_id(), scope)
        self._edge = edge
        self._turns = turns
        # The chat's task while its message arrives.
        self._arriving: asyncio.Task[None] | None = None
        self.scope[WHEN_GONE] = self._register
        self._context = context
        self._stalled_reader_s = stalled_reader_s
        self._is_streamed = is_streamed
        self.span_attributes = _STREAM_SPAN if is_streamed else _COMPLETE_SPAN
        self._message = b""
        # The caller has cancelled, its deadline has passed, or its connection is lost.
        self.is_gone = False
        self._on_gone: Callable[[], None] | None = None
        self.reply: RpcReply | None = None
        # The rate limits that a refusal tells.
        self.rates: Headers = []

    async def identify(self, principals: Principals) -> Principal:
        return await identify(principals, self._context, self.scope, INFERENCE)

    async def arrive(self, principal: Principal, memory: BudgetShare) -> None:
        if self.is_gone:
            raise ClientGone
        self._arriving = asyncio.current_task()
        async with self._turns.message(self._context, principal.account_id) as message:
            if message is None:
                raise ClientGone
            check_size(len(message))
            memory.grow_to(len(message))
        self._arriving = None
        self._message = message
        self.announced_bytes = len(message)
        self.has_small_body = len(message) <= SMALL_BODY_BYTES

    async def read(self, memory: BudgetShare) -> bytes:
        message, self._message = self._message, b""
        request = parse(message, pb.StreamRequest) if self._is_streamed else parse(message, pb.CompleteRequest)
        unknown = name_unknown_fields(request, message)
        del message
        body = await render_chat(request.chat, is_streamed=self._is_streamed, unknown=unknown)
        check_size(len(body))
        memory.grow_to(len(body))
        return body

    def _register(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone

    def leave(self) -> None:
        """Handles a caller that has cancelled, whose deadline has passed, or that is gone."""
        self.is_gone = True
        self.scope.pop(WHEN_GONE, None)
        if self._arriving is not None:
            self._arriving.cancel()
        if self.reply is not None:
            self.reply.drop()
        if self._on_gone is not None:
            self._on_gone()
            self._on_gone = None

    def open_reply(self, body: ChatBody, hold: ChatHold) -> RpcReply:
        created_s = int(self._edge.clock.now().timestamp())
        kind = StreamedReply if self._is_streamed else WholeReply
        context, id_metadata = self._context, (("x-request-id", self.request_id),)
        call = AnsweredCall(
            body.ignored,
            body.custom_tools,
            hold,
            created_s,
            context.write,
            self.leave,
            self._stalled_reader_s,
            lambda: context.send_initial_metadata(id_metadata),
            context.time_remaining,
        )
        self.reply = kind(call)
        return self.reply

    def record_rates(self, rates: Headers) -> None:
        self.rates = rates
