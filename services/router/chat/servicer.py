"""The RPCs of the edge: chats, and the classes that can be asked for."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.router.v1 import router_pb2 as pb
from legato_protos.router.v1 import router_pb2_grpc as pb_grpc
from services.chassis.exchange.methods import CallSpans, StreamMethod
from services.chassis.exchange.rpc import serve_stream
from services.chassis.exchange.server import ExchangeServer
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Histogram
from services.chassis.telemetry.tracing import Tracer
from services.router.chat.completion import Completions
from services.rules.model_classes import AUTO, CLASSES

OWNER = "legato"
# The classes are as old as the service; only the models behind them change.
CREATE_TIME = Timestamp()
CREATE_TIME.FromDatetime(datetime(2026, 11, 15, tzinfo=UTC))

SERVICE = pb.DESCRIPTOR.services_by_name["RouterService"].full_name


class RouterServicer(pb_grpc.RouterServiceServicer):
    def __init__(self, completions: Completions, log: Log, tracer: Tracer | None = None) -> None:
        self._completions = completions
        self._chat = StreamMethod(pb.ChatRequest, completions.serve)
        self._exchange = ExchangeServer(SERVICE, {"Chat": self._chat}, pb.ExchangeResponse, log, tracer)
        self._spans = None if tracer is None else CallSpans(tracer, SERVICE)

    @property
    def message_items(self) -> Histogram:
        return self._exchange.message_items

    async def drain(self, delay_s: float = 0.0) -> None:
        """Requests every edge to open no more chats here, then waits until none is running. Callers without an exchange
        may still open chats until the delay is over."""
        await self._exchange.drain(delay_s)
        await self._completions.drain()
        await self._exchange.close()

    def Chat(self, request_iterator: AsyncIterator[pb.ChatRequest], context: Context) -> AsyncIterator[pb.ChatResponse]:
        span = None if self._spans is None else self._spans.begin_rpc("Chat", context)
        return serve_stream(self._chat, context, span)

    def Exchange(
        self, request_iterator: AsyncIterator[pb.ExchangeRequest], context: Context
    ) -> AsyncIterator[pb.ExchangeResponse]:
        return self._exchange.serve(request_iterator)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        auto = pb.Model(model_id=AUTO, create_time=CREATE_TIME, owner=OWNER)
        return pb.ListModelsResponse(models=[auto, *map(self._to_model, CLASSES)])

    async def CountTokens(self, request: pb.CountTokensRequest, context: Context) -> pb.CountTokensResponse:
        return pb.CountTokensResponse(tokens=await self._completions.count_tokens(request.chat))

    def _to_model(self, class_id: str) -> pb.Model:
        states = self._completions.model_states
        models = states.by_class[class_id].all
        speed = states.recent_speed.of(model.breaker for model in models)
        return pb.Model(
            model_id=class_id,
            create_time=CREATE_TIME,
            owner=OWNER,
            is_bundled=class_id in states.routes.bundled_classes,
            context_tokens=max(model.target.context_tokens for model in models),
            max_output_tokens=max(model.target.max_output_tokens for model in models),
            speed=None if speed is None else to_message(pb.Speed, speed),
        )
