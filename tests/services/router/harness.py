"""A router on a real gRPC server, in front of model servers that do as they are told."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from legato_protos.router.v1.router_pb2 import (
    ChatOpen,
    ChatRequest,
    ChatResponse,
    ExchangeRequest,
    Finished,
    Grant,
    Need,
)
from legato_protos.router.v1.router_pb2_grpc import RouterServiceStub
from services.chassis.errors import LegatoError
from services.chassis.exchange.calls import ClientCall
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.rpc import RpcCall
from services.chassis.load.fair_budget import FairBudget
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import SystemClock
from services.router.calls.fallback import Targets
from services.router.chat.completion import Completions
from services.router.chat.servicer import RouterServicer
from services.router.metrics import show_chats, show_model_states, show_outcomes
from services.router.models.fleet_limits import FleetLimits
from services.router.models.states import ClassObserver, ModelStates
from services.router.providers import open_provider
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.reasoning.sealed_ids import open_seals
from services.router.routes.class_route import ClassRoute, TierMember, in_order
from services.router.routes.routes import Routes
from services.router.routes.target import Target
from services.router.settings import MOST_ATTEMPTS
from services.router.trials.canary import Canaries
from services.router.trials.outcomes import OutcomesByClass
from services.rules.model_classes import CLASSES
from tests.support.upstreams.openai import Upstream

if TYPE_CHECKING:
    from legato_protos.router.v1.router_pb2_grpc import RouterServiceAsyncStub
    from services.router.grounding.grounding import Grounding

QUESTION = b'[{"role": "user", "content": "How are you?"}]'
PLENTY = Grant(prompt_tokens=10**9, output_tokens=10**9)
QUICK = Timeouts(connect_s=1, first_byte_s=0.3, idle_s=0.3, whole_s=0.3)

Call = ClientCall[ChatResponse] | RpcCall[ChatResponse]


@dataclass
class Answer:
    """All that came of one chat, put together as a client would."""

    responses: list[ChatResponse] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(content for response in self.responses for content in response.contents)

    @property
    def finished(self) -> Finished:
        return self.responses[-1].finished

    @property
    def needs(self) -> list[Need]:
        return [response.need for response in self.responses if response.HasField("need")]

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        calls: dict[int, dict[str, Any]] = {}
        for response in self.responses:
            for delta in response.tool_calls:
                call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.id
                call["name"] += delta.name
                call["arguments"] += delta.arguments
        return list(calls.values())


class Router:
    """Chats with the router by way of its exchange, or by the ordinary RPC."""

    # Of a router in this process.
    model_states: ModelStates

    def __init__(self, stub: "RouterServiceAsyncStub", exchange: ExchangeClient) -> None:
        self.stub = stub
        self._exchange = exchange

    def open(self, messages_json: bytes = QUESTION, *, ordinary: bool = False, **fields: Any) -> Call:
        opening = {"request_id": "0" * 32, "model": "forte", "stream": True, "grant": PLENTY, **fields}
        request = ChatRequest(open=ChatOpen(messages_json=messages_json, **opening))
        if ordinary:
            return RpcCall("Router", self.stub.Chat(), request)
        return self._exchange.open("Chat", request, ChatResponse)

    async def ask(self, messages_json: bytes = QUESTION, **fields: Any) -> Answer:
        return await read(self.open(messages_json, **fields))


async def read(call: Call, *grants: Grant) -> Answer:
    """Reads to the end; each need gets the next grant."""
    answer = Answer()
    waiting = list(grants)
    while (response := await call.receive()) is not None:
        answer.responses.append(response)
        if response.HasField("need") and waiting:
            call.send(ChatRequest(grant=waiting.pop(0)))
    return answer


def target(provider: str, context_tokens: int = 100_000, max_output_tokens: int = 10_000) -> Target:
    return Target(provider, f"{provider}-model", context_tokens, max_output_tokens)


def in_tiers(*tiers: dict[Target, int]) -> ClassRoute:
    """A class whose models have weights."""
    return ClassRoute(tuple(tuple(TierMember(target, weight) for target, weight in tier.items()) for tier in tiers))


@asynccontextmanager
async def running_router(
    folder: Path,
    log: Log,
    targets: dict[Target, Upstream],
    timeouts: Timeouts | None = None,
    registry: Registry | None = None,
    grounding: "Grounding | None" = None,
    tracer: Tracer | None = None,
    *,
    sends_traces: bool = False,
    most_attempts: int = MOST_ATTEMPTS,
    also: Callable[[Completions], object] | None = None,
    prompt_memory: FairBudget | None = None,
    route: ClassRoute | None = None,
    limits: FleetLimits | None = None,
    observers: Sequence[ClassObserver] = (),
    route_fields: Mapping[str, Any] | None = None,
    reasoning_key: str = "",
) -> AsyncIterator[Router]:
    """`route` is of all classes, in place of the targets in their order; `observers` learn of all calls; `route_fields`
    are of all providers."""
    fields = dict(route_fields or {})
    routes = Routes(
        {target.provider: replace(_route(target.provider, each), **fields) for target, each in targets.items()},
        dict.fromkeys(
            CLASSES, route or in_order(*(replace(target, timeouts=timeouts or target.timeouts) for target in targets))
        ),
    )
    clock = SystemClock()
    open_one = partial(open_provider, local_model_socket=folder / "model.sock")
    outcomes, canaries = OutcomesByClass(), Canaries(log)
    model_states = ModelStates(routes, open_one, clock, log, limits=limits, observers=(outcomes, canaries, *observers))
    targets_in_turn = Targets(
        model_states, log, most_attempts, find_models=canaries.find_models, sends_traces=sends_traces
    )
    seals = open_seals(reasoning_key)
    completions = Completions(model_states, targets_in_turn, clock, log, grounding, prompt_memory, seals)
    if registry is not None:
        show_model_states(model_states, registry)
        show_outcomes(outcomes, registry)
        canaries.show(registry)
        show_chats(completions, registry)
    servicer = RouterServicer(completions, log, tracer)
    servicers = [servicer, *([] if also is None else [also(completions)])]
    server = RpcServer(f"unix:{folder}/router.sock", servicers, log)
    await server.start()
    try:
        async with connected_router(f"unix:{folder}/router.sock", log) as router:
            router.model_states = model_states
            yield router
    finally:
        await server.stop(0)
        await model_states.aclose()


def _route(name: str, upstream: Upstream) -> ProviderRoute:
    return ProviderRoute(name, upstream.kind, upstream.base_url, api_key="secret", version=upstream.version)


@asynccontextmanager
async def connected_router(address: str, log: Log) -> AsyncIterator[Router]:
    channel = open_channel(address)
    stub = RouterServiceStub(channel)
    exchange = ExchangeClient("Router", stub.Exchange, ExchangeRequest, log)
    exchange.start()
    try:
        await exchange.connected()
        yield Router(stub, exchange)
    finally:
        await exchange.close()
        await channel.close()


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


# More marks of what is to be cached than Claude takes: another vendor's model may.
FIVE_CACHE_MARKS = as_json(
    [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}] * 5
)


# A chat on the exchange, and as an RPC of its own: both must do the same.
WAYS = pytest.mark.parametrize("ordinary", [False, True], ids=["exchange", "rpc"])


async def refusal_of(router: Router, **fields: object) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await router.ask(**fields)  # type: ignore[arg-type]
    return refusal.value
