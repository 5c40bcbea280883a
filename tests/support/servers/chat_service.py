"""A ChatService that answers what a test tells it, for tests of clients."""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_status import rpc_status

from legato_protos.chat.v1.chat_pb2 import (
    CompleteRequest,
    CompleteResponse,
    CountTokensRequest,
    CountTokensResponse,
    GetRequestRequest,
    GetRequestResponse,
    GetUsageRequest,
    GetUsageResponse,
    ListModelsRequest,
    ListModelsResponse,
    StreamRequest,
    StreamResponse,
)
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceServicer, add_ChatServiceServicer_to_server
from services.chassis.errors import LegatoError, to_status

REQUEST_ID = "0123456789abcdef0123456789abcdef"
# As many streams may wait.
THREADS = 4


@dataclass
class Received:
    request: Any
    metadata: dict[str, str | bytes]
    remaining_s: float


class ScriptedChatService(ChatServiceServicer):
    def __init__(self) -> None:
        self.received: list[Received] = []
        # Raised first, one by each call.
        self.refusals: deque[LegatoError] = deque()
        # Sent with each refusal.
        self.pushback: tuple[tuple[str, str], ...] = ()
        self.completion = CompleteResponse()
        self.pieces: list[StreamResponse] = []
        # A stream waits for it after its pieces.
        self.may_end = threading.Event()
        self.may_end.set()
        self.was_cancelled = threading.Event()
        self.count = CountTokensResponse()
        self.models = ListModelsResponse()
        self.usage = GetUsageResponse()
        self.request = GetRequestResponse()

    def Complete(self, request: CompleteRequest, context: Any) -> CompleteResponse:
        self._admit(request, context)
        return self.completion

    def Stream(self, request: StreamRequest, context: Any) -> Iterator[StreamResponse]:
        self._admit(request, context)
        if not context.add_callback(lambda: None if self.may_end.is_set() else self._cancel()):
            # It was over before it came here.
            self._cancel()
        yield from self.pieces
        self.may_end.wait()

    def CountTokens(self, request: CountTokensRequest, context: Any) -> CountTokensResponse:
        self._admit(request, context)
        return self.count

    def ListModels(self, request: ListModelsRequest, context: Any) -> ListModelsResponse:
        self._admit(request, context)
        return self.models

    def GetUsage(self, request: GetUsageRequest, context: Any) -> GetUsageResponse:
        self._admit(request, context)
        return self.usage

    def GetRequest(self, request: GetRequestRequest, context: Any) -> GetRequestResponse:
        self._admit(request, context)
        return self.request

    def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> tuple[grpc.Server, int]:
        """Returns a server of its own, and its port."""
        server = grpc.server(ThreadPoolExecutor(THREADS))
        add_ChatServiceServicer_to_server(self, server)
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        server.start()
        return server, port

    def _admit(self, request: Any, context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        self.received.append(Received(request, metadata, context.time_remaining()))
        if self.refusals:
            context.set_trailing_metadata((("x-request-id", REQUEST_ID), *self.pushback))
            status: Any = rpc_status.to_status(to_status(self.refusals.popleft()))
            trailing = (*status.trailing_metadata, ("x-request-id", REQUEST_ID), *self.pushback)
            context.abort_with_status(_Refusal(status.code, status.details, trailing))

    def _cancel(self) -> None:
        self.was_cancelled.set()
        # Its thread is needed for the next call.
        self.may_end.set()


@dataclass
class _Refusal(grpc.Status):
    code: grpc.StatusCode
    details: str
    trailing_metadata: Any
