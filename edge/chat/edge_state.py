"""The parts of the edge that chats and other endpoints share, kept as `app.state.edge`."""

from dataclasses import dataclass

from edge.access.model_catalog import ModelCatalog
from edge.access.principals import Principals
from edge.access.saturation import EdgeSaturation
from edge.backends.exchanges import RouterReplica
from edge.billing.journal import Journal
from edge.billing.metering import Metering
from edge.chat.chat_metrics import ChatMetrics
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_UNSPECIFIED, ChatApi
from services.chassis.errors import LegatoError
from services.chassis.load.fair_budget import FairBudget
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeState:
    principals: Principals
    models: ModelCatalog
    metering: Metering
    journal: Journal
    routers: Replicas[RouterReplica]
    saturation: EdgeSaturation
    # The edge's connections, and its memory for prompts: each account may have its share of them.
    places: FairBudget
    prompt_memory: FairBudget
    # Time limit of an answer: metering releases its hold a little later.
    life_s: float
    # Longest silence of a stream before its first token, and between keepalive comments.
    keepalive_s: float
    clock: Clock
    log: Log
    metrics: ChatMetrics
    # None disables tracing.
    tracer: Tracer | None = None

    def record_refusal(
        self, error: LegatoError, request_id: str, api: "ChatApi.ValueType" = CHAT_API_UNSPECIFIED
    ) -> None:
        """Counts and logs an error that a client is sent; with the API, if it is of a chat."""
        self.metrics.refused(error.reason, api)
        status = error.wire.http_status
        self.log.debug("request.refused", request_id=request_id, reason=error.reason, http_status=status)
