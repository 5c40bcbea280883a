"""The RPCs of router.proto."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.router.v1 import router_pb2 as pb
from protos.router.v1 import router_pb2_grpc as pb_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import CallSpans, ExchangeServer, StreamMethod, serve_stream
from services.chassis.load.admission import NO_LIMIT
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Histogram
from services.chassis.telemetry.tracing import Tracer
from services.router.completion import Completions
from services.router.providers.base import Timeouts
from services.router.routing.circuit_breaker import BreakerState
from services.router.routing.model_states import ModelState, ModelStates
from services.router.routing.route_changes import find_changes
from services.router.routing.routes import Routes, load_routes
from services.rules.model_classes import AUTO, CLASSES


class Reload:
    def __init__(self, path: Path, timeouts: Timeouts, model_states: ModelStates, log: Log, routes: Routes) -> None:
        """Takes the `routes` in use, which the file at `path` had."""
        self._path = path
        self._timeouts = timeouts
        self._model_states = model_states
        self._log = log
        self._routes = routes

    def now(self) -> None:
        """Reloads for new chats; running ones keep their routes. Raises SettingsError, and then nothing has changed."""
        try:
            routes = load_routes(self._path, timeouts=self._timeouts)
        except SettingsError as error:
            for mistake in str(error).splitlines():
                self._log.warning("routes.refused", reason=mistake)
            raise
        self._model_states.replace(routes)
        self._routes = routes
        self._log.info("routes.reloaded")

    def find_changes(self) -> list[str]:
        """Returns what a reload would change; raises SettingsError if the file has mistakes."""
        return find_changes(self._routes, load_routes(self._path, timeouts=self._timeouts))

    def on_signal(self) -> None:
        """Reloads on SIGHUP; mistakes are found in the log."""
        with contextlib.suppress(SettingsError):
            self.now()


Context = grpc.aio.ServicerContext[Any, Any]

OWNER = "legato"
# The classes are as old as the service; only the models behind them change.
CREATED = datetime(2026, 11, 15, tzinfo=UTC)

SERVICE = pb.DESCRIPTOR.services_by_name["RouterService"].full_name

_STATE_TO_PROTO = {
    BreakerState.CLOSED: pb.BREAKER_STATE_CLOSED,
    BreakerState.OPEN: pb.BREAKER_STATE_OPEN,
    BreakerState.HALF_OPEN: pb.BREAKER_STATE_HALF_OPEN,
}


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
        return self._exchange.serve(request_iterator, context)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        created = Timestamp()
        created.FromDatetime(CREATED)
        bundled = self._completions.bundled_classes
        return pb.ListModelsResponse(
            models=[
                pb.Model(model_id=model_id, create_time=created, owner=OWNER, is_bundled=model_id in bundled)
                for model_id in (AUTO, *CLASSES)
            ]
        )


class RouteAdminServicer(pb_grpc.RouteAdminServiceServicer):
    def __init__(self, model_states: ModelStates, reload: Reload) -> None:
        self._model_states = model_states
        self._reload = reload

    async def ReloadRoutes(self, request: pb.ReloadRoutesRequest, context: Context) -> pb.ReloadRoutesResponse:
        try:
            self._reload.now()
        except SettingsError as error:
            raise LegatoError(Reason.REQUEST_INVALID, str(error)) from None
        return pb.ReloadRoutesResponse(targets=self._targets())

    async def ListTargets(self, request: pb.ListTargetsRequest, context: Context) -> pb.ListTargetsResponse:
        response = pb.ListTargetsResponse(targets=self._targets())
        if request.compares_file:
            try:
                response.changes.extend(self._reload.find_changes())
            except SettingsError as error:
                response.file_mistakes.extend(str(error).splitlines())
        return response

    def _targets(self) -> list[pb.Target]:
        by_class = self._model_states.by_class
        return [_to_target(class_id, model_state) for class_id in CLASSES for model_state in by_class[class_id]]


def _to_target(class_id: str, model_state: ModelState) -> pb.Target:
    gate, health = model_state.saturation.gate, model_state.health
    cost = model_state.target.cost
    return pb.Target(
        class_id=class_id,
        provider=model_state.target.provider,
        model_name=model_state.target.model_name,
        breaker_state=_STATE_TO_PROTO[health.state],
        attempts=health.attempts,
        failures=health.failures,
        median_latency_s=health.median_latency_s,
        running=gate.running,
        limit=int(gate.limit) if gate.limit < NO_LIMIT else None,
        cost=None
        if cost is None
        else pb.ProviderCost(
            input_nanos=cost.input_nanos, cached_input_nanos=cost.cached_input_nanos, output_nanos=cost.output_nanos
        ),
    )
