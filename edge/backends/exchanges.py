"""The services behind the edge: their channels and exchanges, opened and closed together."""

import asyncio
from typing import Any, Generic, TypeVar

from edge.backends.auth import NAME as AUTH
from edge.backends.auth import AuthReplica, Principal
from edge.wire.chat_request import ChatBody
from protos.metering.v1 import metering_pb2, metering_pb2_grpc
from protos.router.v1 import router_pb2, router_pb2_grpc
from protos.router.v1.router_pb2 import ChatOpen, ChatRequest, Grant
from services.chassis.exchange import CallsInFlight, ClientCall, Consumer, ExchangeClient, RpcCall
from services.chassis.packed_pieces import unpack_piece
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder
from services.chassis.rpc.replicas import Replicas
from services.chassis.rpc.subset import Subset
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import current_span
from services.chassis.timing.deadlines import Clock

# A chat with a larger opening message has an RPC of its own, so that no other chat queues behind it.
SHARED_STREAM_BYTES = 256 * 1024
# How many of these openings are sent to one router at the same time.
MOST_BULK_OPENINGS = 2

ChatCall = ClientCall[router_pb2.ChatResponse] | RpcCall[router_pb2.ChatResponse]


StubT = TypeVar("StubT")


class _Replica(Generic[StubT]):
    """One process of a service, and the exchange with it."""

    def __init__(
        self,
        service: str,
        connection: ChannelHolder[StubT],
        request_type: type[Any],
        log: Log,
        message_items: Histogram | None,
        in_flight: CallsInFlight | None,
        *,
        has_packed: bool = False,
    ) -> None:
        self._connection = connection
        self._exchange = ExchangeClient(
            service, self._open_exchange, request_type, log, message_items, in_flight, has_packed=has_packed
        )
        self._exchange.start()

    @property
    def stub(self) -> StubT:
        return self._connection.stub

    def _open_exchange(self) -> Any:
        # The stub is looked up each time, for the newest certificate.
        stub: Any = self.stub
        return stub.Exchange()

    @property
    def usable(self) -> bool:
        return self._exchange.usable

    @property
    def is_leaving(self) -> bool:
        return self._exchange.is_leaving

    @property
    def load(self) -> int:
        return self._exchange.load

    async def close(self) -> None:
        await self._exchange.close()
        await self._connection.close()


class RouterReplica(_Replica["router_pb2_grpc.RouterServiceAsyncStub"]):
    def __init__(
        self,
        address: str,
        log: Log,
        certificates: Certificates | None = None,
        message_items: Histogram | None = None,
        in_flight: CallsInFlight | None = None,
    ) -> None:
        def connect() -> ChannelHolder["router_pb2_grpc.RouterServiceAsyncStub"]:
            return ChannelHolder(address, "router", router_pb2_grpc.RouterServiceStub, certificates)

        self._bulk = connect()
        self._bulk_calls = 0
        # Until it is sent, each takes twice its size besides.
        self._bulk_openings = asyncio.Semaphore(MOST_BULK_OPENINGS)
        self._in_flight = in_flight = in_flight or CallsInFlight()
        super().__init__(
            "The router", connect(), router_pb2.ExchangeRequest, log, message_items, in_flight, has_packed=True
        )

    def chat(self, request: ChatRequest, consumer: Consumer) -> ChatCall:
        """Opens a chat, whose responses `consumer` is offered first; the request is not kept once it is sent."""
        if request.ByteSize() > SHARED_STREAM_BYTES:
            return RpcCall("The router", self._open_bulk_call(), request, self._bulk_openings)
        # A whole answer is put together from its messages.
        request.open.takes_packed = request.open.stream
        return self._exchange.open("Chat", request, router_pb2.ChatResponse, unpack_piece, consumer)

    @property
    def load(self) -> int:
        return super().load + self._bulk_calls

    def _open_bulk_call(self) -> Any:
        span = current_span()
        metadata = None if span is None else (("traceparent", span.traceparent),)
        call = self._bulk.stub.Chat(metadata=metadata)
        self._bulk_calls += 1
        self._in_flight.count += 1
        call.add_done_callback(self._end_bulk_call)
        return call

    def _end_bulk_call(self, call: Any) -> None:
        self._bulk_calls -= 1
        self._in_flight.count -= 1

    async def close(self) -> None:
        await super().close()
        await self._bulk.close()


class MeteringReplica(_Replica["metering_pb2_grpc.MeteringServiceAsyncStub"]):
    def __init__(
        self,
        address: str,
        log: Log,
        certificates: Certificates | None = None,
        message_items: Histogram | None = None,
        in_flight: CallsInFlight | None = None,
    ) -> None:
        connection: ChannelHolder[metering_pb2_grpc.MeteringServiceAsyncStub] = ChannelHolder(
            address, "metering", metering_pb2_grpc.MeteringServiceStub, certificates
        )
        super().__init__("Metering", connection, metering_pb2.ExchangeRequest, log, message_items, in_flight)
        self.call = self._exchange.call


class Backends:
    def __init__(
        self,
        auth_address: str,
        router_address: str,
        metering_address: str,
        clock: Clock,
        log: Log,
        certificates: Certificates | None,
        router_subset: Subset | None = None,
    ) -> None:
        # Items per message, for all replicas of a service together.
        self.message_items = {"router": Histogram(BATCH_BOUNDS), "metering": Histogram(BATCH_BOUNDS)}
        to_router, to_metering = self.message_items.values()
        # Of both: a chat is at one of them at a time, and calls both.
        in_flight = CallsInFlight()
        self.auths: Replicas[AuthReplica] = Replicas(
            AUTH, auth_address, lambda address: AuthReplica(address, clock, certificates), log
        )
        self.routers: Replicas[RouterReplica] = Replicas(
            "The router",
            router_address,
            lambda address: RouterReplica(address, log, certificates, to_router, in_flight),
            log,
            router_subset,
        )
        self.meterings: Replicas[MeteringReplica] = Replicas(
            "Metering",
            metering_address,
            lambda address: MeteringReplica(address, log, certificates, to_metering, in_flight),
            log,
        )

    async def start(self) -> None:
        await self.auths.start()
        await self.routers.start()
        await self.meterings.start()

    async def close(self) -> None:
        await self.routers.close()
        await self.meterings.close()
        await self.auths.close()


def chat_opening(body: ChatBody, principal: Principal, request_id: str, grant: Grant) -> ChatRequest:
    request = ChatRequest(
        open=ChatOpen(
            request_id=request_id,
            account_id=principal.account_id,
            model=body.model,
            preferred_class=principal.preferred_class,
            tool_choice_json=body.tool_choice_json,
            stream=body.stream,
            max_tokens=body.max_tokens,
            parameters_json=body.parameters_json,
            grant=grant,
            key_id=principal.key_id,
            search=principal.search and not body.names_tool_choice,
            memory=principal.memory,
            attachments=principal.attachments,
        )
    )
    # Not before, since a message inside another is a copy.
    request.open.messages_json = body.messages_json
    request.open.tools_json = body.tools_json
    if principal.allowed_classes is not None:
        request.open.allowed_classes.class_ids.extend(sorted(principal.allowed_classes))
    return request
