"""The client for programs that use threads. Its methods may be called from several at once."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self, Unpack

import grpc

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
from legato_protos.client.channel import Certificates, open_channel
from legato_protos.client.chat_request import ChatOptions, Messages, chat_from
from legato_protos.client.errors import error_from
from legato_protos.client.streamed_answer import StreamedAnswer
from legato_protos.client.usage_request import UsageOptions, usage_request_from


class _StreamCall(Iterator[StreamResponse], Protocol):
    def cancel(self) -> object: ...


class ChatStream(Iterator[Delta]):
    """The deltas of an answer as they come. `close` cancels what is left of it, as does leaving its context."""

    def __init__(self, call: _StreamCall) -> None:
        self._call = call
        self._answer = StreamedAnswer()
        self._deltas: deque[Delta] = deque()
        self._is_closed = False

    def __next__(self) -> Delta:
        while not self._deltas:
            if self._is_closed:
                raise StopIteration
            with _errors():
                piece = next(self._call, None)
            if piece is None:
                self._answer.response()
                raise StopIteration
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

    def response(self) -> CompleteResponse:
        """Waits for the rest, and returns the whole answer."""
        for _ in self:
            pass
        return self._answer.response()

    def close(self) -> None:
        self._is_closed = True
        self._deltas.clear()
        self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LegatoClient:
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
        """Prepares calls to the edges at `address`: `unix:PATH`, or with certificates HOST:PORT or any other name that
        gRPC resolves. They are for the owner of `api_key`, or for `account_id`, if the operator has granted it to this
        program. On a unix socket the program says who it is, by `caller`; elsewhere its certificate does."""
        self._settings = CallSettings(api_key, account_id, caller, chat_timeout_s, read_timeout_s)
        self._channel = open_channel(address, certificates)
        self._stub = ChatServiceStub(self._channel)

    def complete(
        self,
        messages: Messages,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> CompleteResponse:
        """Answers in one piece: its text is `.message.text`."""
        arguments = self._settings.of_chat(timeout_s, idempotency_key)
        with _errors():
            return self._stub.Complete(CompleteRequest(chat=chat_from(messages, options)), **arguments)

    def stream(
        self,
        messages: Messages,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatStream:
        """Answers delta by delta, with `.text` or a part of a tool call in each. Errors are raised by the iteration."""
        arguments = self._settings.of_chat(timeout_s, idempotency_key)
        return ChatStream(self._stub.Stream(StreamRequest(chat=chat_from(messages, options)), **arguments))

    def count_tokens(
        self, messages: Messages, *, timeout_s: float | None = None, **options: Unpack[ChatOptions]
    ) -> int:
        """Counts the prompt of a chat. It is free."""
        request = CountTokensRequest(chat=chat_from(messages, options))
        with _errors():
            return self._stub.CountTokens(request, **self._settings.of_read(timeout_s)).prompt_tokens

    def list_models(self, *, timeout_s: float | None = None) -> Sequence[Model]:
        with _errors():
            return self._stub.ListModels(ListModelsRequest(), **self._settings.of_read(timeout_s)).models

    def get_usage(self, *, timeout_s: float | None = None, **options: Unpack[UsageOptions]) -> GetUsageResponse:
        """Reads a page of the account's tokens and cost."""
        with _errors():
            return self._stub.GetUsage(usage_request_from(options), **self._settings.of_read(timeout_s))

    def get_request(self, request_id: str, *, timeout_s: float | None = None) -> GetRequestResponse:
        """Reads state and cost of one request of the account."""
        with _errors():
            return self._stub.GetRequest(GetRequestRequest(request_id=request_id), **self._settings.of_read(timeout_s))

    def close(self) -> None:
        """Cancels what still runs."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as failure:
        raise error_from(failure) from failure
