"""The RPCs of router.proto."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.router.v1 import router_pb2 as pb
from protos.router.v1 import router_pb2_grpc as pb_grpc
from services.chassis.exchange import ExchangeServer, StreamMethod, serve_stream
from services.chassis.log import Log
from services.chassis.server import Registration
from services.router.completion import AUTO, Completions
from services.router.routes import CLASSES

Context = grpc.aio.ServicerContext[Any, Any]

OWNER = "legato"
# The classes are as old as the service; the models behind them come and go.
CREATED = datetime(2026, 11, 15, tzinfo=UTC)


class RouterServicer(pb_grpc.RouterServiceServicer):
    def __init__(self, completions: Completions, log: Log) -> None:
        self._completions = completions
        self._chat = StreamMethod(pb.ChatRequest, completions.serve)
        self._exchange = ExchangeServer({"Chat": self._chat}, pb.ExchangeResponse, log)

    async def drain(self) -> None:
        """Ask every edge to open no further chats here, then wait until none runs, whichever way it came."""
        await self._exchange.drain()
        await self._completions.drain()

    def Chat(self, request_iterator: AsyncIterator[pb.ChatRequest], context: Context) -> AsyncIterator[pb.ChatResponse]:
        return serve_stream(self._chat, request_iterator, context)

    def Exchange(
        self, request_iterator: AsyncIterator[pb.ExchangeRequest], context: Context
    ) -> AsyncIterator[pb.ExchangeResponse]:
        return self._exchange.serve(request_iterator, context)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        created = Timestamp()
        created.FromDatetime(CREATED)
        return pb.ListModelsResponse(
            models=[pb.Model(model_id=model_id, create_time=created, owner=OWNER) for model_id in (AUTO, *CLASSES)]
        )


def register_router(servicer: RouterServicer) -> Registration:
    def register(server: grpc.aio.Server) -> str:
        pb_grpc.add_RouterServiceServicer_to_server(servicer, server)
        return pb.DESCRIPTOR.services_by_name["RouterService"].full_name

    return register
