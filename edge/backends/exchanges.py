"""The services behind the edge: their channels and exchanges, opened and closed together."""

import asyncio
from collections import Counter
from collections.abc import Callable
from operator import methodcaller
from typing import Any, ClassVar, Generic, TypeVar

import grpc.aio

from edge.backends.auth import NAME as AUTH
from edge.backends.auth import AuthReplica
from edge.backends.chat_opening import ChatOpening
from legato_protos.metering.v1 import metering_pb2, metering_pb2_grpc
from legato_protos.router.v1 import router_pb2, router_pb2_grpc
from services.chassis.exchange.calls import ClientCall, Consumer
from services.chassis.exchange.client import CallsInFlight, ExchangeClient
from services.chassis.exchange.methods import Encodable
from services.chassis.exchange.rpc import RpcCall
from services.chassis.packed_pieces import unpack_piece
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, errors_of
from services.chassis.rpc.replicas import Replicas
from services.chassis.rpc.subset import Subset
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import current_span
from services.chassis.timing.deadlines import Clock

# A chat with a larger opening message has an RPC of its own, so that no other chat queues behind it.
SHARED_STREAM_BYTES = 512 * 1024
# How many of these openings are sent to one router at the same time.
MOST_BULK_OPENINGS = 2
# A prompt of a million tokens takes some hundred milliseconds.
COUNT_TIMEOUT_S = 10.0

ChatCall = ClientCall[router_pb2.ChatResponse] | RpcCall[router_pb2.ChatResponse]

StubT = TypeVar("StubT")
ReplicaT = TypeVar("ReplicaT", bound="RouterReplica | MeteringReplica")


class _Replica(ExchangeClient, Generic[StubT]):
    """One process of a service: the exchange with it, and a stub for other calls."""

    # The service in error messages, and in its certificate.
    title: ClassVar[str]
    server_name: ClassVar[str]
    stub_type: ClassVar[type[Any]]
    request_type: ClassVar[type[Any]]
    has_packed: ClassVar[bool] = False

    def __init__(
        self,
        address: str,
        log: Log,
        certificates: Certificates | None = None,
        message_items: Histogram | None = None,
        in_flight: CallsInFlight | None = None,
        on_silence: Callable[[], None] | None = None,
    ) -> None:
        self._address = address
        self._certificates = certificates
        self._connection: ChannelHolder[StubT] = self._connect(self.stub_type)
        super().__init__(
            self.title,
            self._open_exchange,
            self.request_type,
            log,
            message_items,
            in_flight,
            on_silence,
            has_packed=self.has_packed,
        )
        self.start()

    @property
    def stub(self) -> StubT:
        return self._connection.stub

    def _connect(self, stub_type: type[Any]) -> ChannelHolder[Any]:
        return ChannelHolder(self._address, self.server_name, stub_type, self._certificates)

    def _open_exchange(self) -> Any:
        # The stub is looked up each time, for the newest certificate.
        stub: Any = self.stub
        return stub.Exchange()

    async def close(self) -> None:
        await super().close()
        await self._connection.close()


class _BulkStub:
    """The calls that share no stream. A chat is opened by a `ChatOpening`, which is no message."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        service: str = router_pb2.DESCRIPTOR.services_by_name["RouterService"].full_name
        self.Chat: grpc.aio.StreamStreamMultiCallable[Encodable, router_pb2.ChatResponse] = channel.stream_stream(
            f"/{service}/Chat",
            request_serializer=methodcaller("SerializeToString"),
            response_deserializer=router_pb2.ChatResponse.FromString,
        )
        self.CountTokens = router_pb2_grpc.RouterServiceStub(channel).CountTokens


class RouterReplica(_Replica["router_pb2_grpc.RouterServiceAsyncStub"]):
    title, server_name = "The router", "router"
    stub_type, request_type = router_pb2_grpc.RouterServiceStub, router_pb2.ExchangeRequest
    has_packed = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._bulk: ChannelHolder[_BulkStub] = self._connect(_BulkStub)
        self._bulk_calls = 0
        # Until it is sent, each takes twice its size besides.
        self._bulk_openings = asyncio.Semaphore(MOST_BULK_OPENINGS)

    def chat(self, opening: ChatOpening, consumer: Consumer) -> ChatCall:
        """Opens a chat, whose responses `consumer` is offered first; the opening is not kept once it is sent."""
        if opening.size_bytes > SHARED_STREAM_BYTES:
            return RpcCall(self.title, self._open_bulk_call(), opening, self._bulk_openings)
        # A whole answer is put together from its messages.
        opening.fields.takes_packed = opening.fields.stream
        return self.open("Chat", opening, router_pb2.ChatResponse, unpack_piece, consumer)

    async def count_tokens(self, chat: router_pb2.ChatOpen) -> int:
        """Returns the tokens of a chat's prompt."""
        with errors_of(self.title):
            request = router_pb2.CountTokensRequest(chat=chat)
            response = await self._bulk.stub.CountTokens(request, timeout=COUNT_TIMEOUT_S)
        return response.tokens

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
    title, server_name = "Metering", "metering"
    stub_type, request_type = metering_pb2_grpc.MeteringServiceStub, metering_pb2.ExchangeRequest


class Backends:
    def __init__(
        self,
        address_of: Callable[[str], str],
        clock: Clock,
        log: Log,
        certificates: Certificates | None,
        subset: Subset,
    ) -> None:
        """Takes the addresses by service, and the choice of routers."""
        # Items per message, for all replicas of a service together.
        self.message_items = {"router": Histogram(BATCH_BOUNDS), "metering": Histogram(BATCH_BOUNDS)}
        # How often a replica of a service fell silent while it was connected.
        self.silences = Counter({"router": 0, "metering": 0})
        # Of both: a chat is at one of them at a time, and calls both.
        in_flight = CallsInFlight()

        def connect_to(kind: type[ReplicaT]) -> Callable[[str], ReplicaT]:
            name = kind.server_name
            items = self.message_items[name]

            def record_silence() -> None:
                self.silences[name] += 1

            return lambda address: kind(address, log, certificates, items, in_flight, record_silence)

        self.auths = Replicas(AUTH, address_of("auth"), lambda address: AuthReplica(address, clock, certificates), log)
        self.routers = Replicas(RouterReplica.title, address_of("router"), connect_to(RouterReplica), log, subset)
        self.meterings = Replicas(MeteringReplica.title, address_of("metering"), connect_to(MeteringReplica), log)
        self._by_name: dict[str, Replicas[Any]] = {
            "auth": self.auths,
            "router": self.routers,
            "metering": self.meterings,
        }

    def usable_replicas(self) -> dict[str, int]:
        """Returns the number of usable replicas by service."""
        return {name: replicas.count_usable() for name, replicas in self._by_name.items()}

    async def start(self) -> None:
        for replicas in self._by_name.values():
            await replicas.start()

    async def close(self) -> None:
        for replicas in reversed(self._by_name.values()):
            await replicas.close()
