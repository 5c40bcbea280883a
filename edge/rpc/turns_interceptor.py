"""Reads the messages of health checks and reflection in turns, too."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from edge.rpc.message_turns import MessageTurns
from legato_protos.chat.v1 import chat_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence

_CHAT_SERVICE: Final = f"/{pb.DESCRIPTOR.services_by_name['ChatService'].full_name}/"
# They share the turns of an account, as these calls are for none.
_NO_ACCOUNT: Final = ""


class TurnsInterceptor(grpc.aio.ServerInterceptor):
    """Replaces the handlers of gRPC's own services, whose messages it would read at once."""

    def __init__(self, turns: MessageTurns) -> None:
        self._turns = turns

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_CHAT_SERVICE):
            return handler
        written = handler.response_serializer
        if handler.stream_stream is not None:

            async def answer_all(_: object, context: Context) -> AsyncIterator[object]:
                async for response in handler.stream_stream(self._messages(handler, context), context):
                    yield response

            return grpc.stream_stream_rpc_method_handler(answer_all, response_serializer=written)
        if handler.unary_stream is not None:

            async def watch(_: object, context: Context) -> None:
                await handler.unary_stream(await self._only(handler, context), context)

            return grpc.stream_stream_rpc_method_handler(watch, response_serializer=written)

        async def answer(_: object, context: Context) -> object:
            return await handler.unary_unary(await self._only(handler, context), context)

        return grpc.stream_unary_rpc_method_handler(answer, response_serializer=written)

    async def _only(self, handler: Any, context: Context) -> object:
        async for request in self._messages(handler, context):
            return request
        return handler.request_deserializer(b"")

    async def _messages(self, handler: Any, context: Context) -> AsyncIterator[object]:
        """Yields the messages of a call, each of which was received in a turn."""
        while True:
            async with self._turns.message(context, _NO_ACCOUNT) as message:
                if message is None:
                    return
                request = _deserialized(handler, message)
            yield request


def _deserialized(handler: Any, message: bytes) -> object:
    try:
        return handler.request_deserializer(message)
    except DecodeError:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("rpc_message_unreadable")) from None
