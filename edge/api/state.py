"""The parts of the edge that endpoints use, kept as `app.state.edge`."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from edge.access.model_catalog import ModelCatalog
from edge.access.principals import Principals
from edge.billing.metering import Metering
from edge.chat.chat_metrics import ChatMetrics
from edge.chat.endpoint import ChatEndpoint
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeState:
    principals: Principals
    chat: ChatEndpoint
    models: ModelCatalog
    metering: Metering
    clock: Clock
    log: Log
    metrics: ChatMetrics


async def edge_of(request: Request) -> EdgeState:
    edge: EdgeState = request.app.state.edge
    return edge


# A parameter of an endpoint: `edge: Edge`.
Edge = Annotated[EdgeState, Depends(edge_of)]
