"""The client for programs that use asyncio. It belongs to the event loop in which it is made."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc.aio

from legato_protos.chat.v1.chat_pb2 import (
    CompleteRequest,
    CompleteResponse,
    CountTokensRequest,
    Delta,
    GetRequestRequest,
    GetRequestResponse,
    GetUsageResponse,
    ListModelsRequest,
    Model,
    StreamRequest,
    StreamResponse,
)
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from legato_protos.client.call_settings import CHAT_TIMEOUT_S, READ_TIMEOUT_S, CallSettings
from legato_protos.client.channel import Certificates, open_async_channel
from legato_protos.client.chat_request import ChatOptions, Messages, chat_from
from legato_protos.client.errors import LegatoError, Reason, error_from
from legato_protos.client.streamed_answer import StreamedAnswer
from legato_protos.client.usage_request import UsageOptions, usage_request_from

_T = TypeVar("_T")


class AsyncChatStream(AsyncIterator[Delta]):
    """The deltas of an answer as they come. `close` cancels what is left of it, as does leaving its context."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[StreamRequest, StreamResponse]) -> None:
        self._call = call
        self._answer = StreamedAnswer()
        self._deltas: deque[Delta] = deque()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    def __del__(self) -> None:
        # gRPC lets a call go on that is no longer referred to, and it would be charged.
        if not (self._call.done() or self._loop.is_closed()):
            self._loop.call_soon_threadsafe(self._call.cancel)

    async def __anext__(self) -> Delta:
        while not self._deltas:
            if self._is_closed:
                raise StopAsyncIteration
            piece = await _result(self._call.read())
            if not isinstance(piece, StreamResponse):
                self._answer.response()
                raise StopAsyncIteration
            self._deltas.extend(self._answer.add(piece))
        return self._deltas.popleft()

    @property
    def request_id(self) -> str:
        """Returns the id for `get_request`; empty before the first delta."""
        return self._answer.started.request_id

    @property
    def text(self) -> str:
        """Returns the text that has come so far."""
        return self._answer.text

    async def response(self) -> CompleteResponse:
        """Waits for the rest, and returns the whole answer."""
        async for _ in self:
            pass
        return self._answer.response()

    def close(self) -> None:
        self._is_closed = True
        self._deltas.clear()
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLegatoClient:
    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        account_id: str | None = None,
        caller: str | None = None,
        certificates: Certificates | None = None,
        chat_timeout_s: float = CHAT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        """Prepares calls; the arguments are those of `LegatoClient`."""
        self._settings = CallSettings(api_key, account_id, caller, chat_timeout_s, read_timeout_s)
        self._channel = open_async_channel(address, certificates)
        self._stub = ChatServiceStub(self._channel)

    async def complete(
        self,
        messages: Messages,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> CompleteResponse:
        """Answers in one piece: its text is `.message.text`."""
        arguments = self._settings.of_chat(timeout_s, idempotency_key)
        return await _result(self._stub.Complete(CompleteRequest(chat=chat_from(messages, options)), **arguments))

    def stream(
        self,
        messages: Messages,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> AsyncChatStream:
        """Answers delta by delta, with `.text` or a part of a tool call in each. Errors are raised by the iteration."""
        arguments = self._settings.of_chat(timeout_s, idempotency_key)
        return AsyncChatStream(self._stub.Stream(StreamRequest(chat=chat_from(messages, options)), **arguments))

    async def count_tokens(
        self, messages: Messages, *, timeout_s: float | None = None, **options: Unpack[ChatOptions]
    ) -> int:
        """Counts the prompt of a chat. It is free."""
        request = CountTokensRequest(chat=chat_from(messages, options))
        return (await _result(self._stub.CountTokens(request, **self._settings.of_read(timeout_s)))).prompt_tokens

    async def list_models(self, *, timeout_s: float | None = None) -> Sequence[Model]:
        return (await _result(self._stub.ListModels(ListModelsRequest(), **self._settings.of_read(timeout_s)))).models

    async def get_usage(self, *, timeout_s: float | None = None, **options: Unpack[UsageOptions]) -> GetUsageResponse:
        """Reads a page of the account's tokens and cost."""
        return await _result(self._stub.GetUsage(usage_request_from(options), **self._settings.of_read(timeout_s)))

    async def get_request(self, request_id: str, *, timeout_s: float | None = None) -> GetRequestResponse:
        """Reads state and cost of one request of the account."""
        request = GetRequestRequest(request_id=request_id)
        return await _result(self._stub.GetRequest(request, **self._settings.of_read(timeout_s)))

    async def close(self) -> None:
        """Cancels what still runs."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _result(call: Awaitable[_T]) -> _T:
    try:
        return await call
    except grpc.aio.AioRpcError as failure:
        raise error_from(failure) from failure
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not the task, but the call was cancelled: its client or stream was closed.
        raise LegatoError(Reason.CANCELLED, "The call was cancelled.") from None
