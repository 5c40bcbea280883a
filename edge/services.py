"""The services behind the edge: their channels and exchanges, opened and closed together."""

from typing import Any

import grpc.aio

from edge.auth import NAME as AUTH
from edge.auth import AuthReplica
from protos.metering.v1 import metering_pb2, metering_pb2_grpc
from protos.router.v1 import router_pb2, router_pb2_grpc
from services.chassis.channel import open_channel
from services.chassis.clock import Clock
from services.chassis.exchange import ClientCall, ExchangeClient, RpcCall
from services.chassis.log import Log
from services.chassis.replicas import Replicas

# A prompt larger than this travels by itself, so that nobody queues behind it.
SHARED_STREAM_BYTES = 256 * 1024

ChatCall = ClientCall[router_pb2.ChatResponse] | RpcCall[router_pb2.ChatResponse]


class _Replica:
    """One process of a service, and the exchange with it."""

    def __init__(self, channel: grpc.aio.Channel, exchange: ExchangeClient) -> None:
        self._channel = channel
        self._exchange = exchange
        exchange.start()

    @property
    def usable(self) -> bool:
        return self._exchange.usable

    @property
    def load(self) -> int:
        return self._exchange.load

    async def close(self) -> None:
        await self._exchange.close()
        await self._channel.close()


class RouterReplica(_Replica):
    def __init__(self, address: str, clock: Clock, log: Log) -> None:
        channel = open_channel(address)
        self.stub = router_pb2_grpc.RouterServiceStub(channel)
        super().__init__(
            channel, ExchangeClient("The router", self.stub.Exchange, router_pb2.ExchangeRequest, clock, log)
        )
        self._bulk_channel = open_channel(address)
        self._bulk_stub = router_pb2_grpc.RouterServiceStub(self._bulk_channel)

    def chat(self, opening: router_pb2.ChatOpen) -> ChatCall:
        request = router_pb2.ChatRequest(open=opening)
        if len(opening.messages_json) + len(opening.tools_json) > SHARED_STREAM_BYTES:
            return RpcCall("The router", self._bulk_stub.Chat(), request)
        return self._exchange.open("Chat", request, router_pb2.ChatResponse)

    async def close(self) -> None:
        await super().close()
        await self._bulk_channel.close()


class MeteringReplica(_Replica):
    def __init__(self, address: str, clock: Clock, log: Log) -> None:
        channel = open_channel(address)
        self.stub = metering_pb2_grpc.MeteringServiceStub(channel)
        super().__init__(
            channel, ExchangeClient("Metering", self.stub.Exchange, metering_pb2.ExchangeRequest, clock, log)
        )

    async def ask(self, method: str, request: Any, response_type: Any, timeout_s: float) -> Any:
        return await self._exchange.ask(method, request, response_type, timeout_s)


class Services:
    def __init__(self, auth_address: str, router_address: str, metering_address: str, clock: Clock, log: Log) -> None:
        self.auths: Replicas[AuthReplica] = Replicas(
            AUTH, auth_address, lambda address: AuthReplica(address, clock), log
        )
        self.routers: Replicas[RouterReplica] = Replicas(
            "The router", router_address, lambda address: RouterReplica(address, clock, log), log
        )
        self.meterings: Replicas[MeteringReplica] = Replicas(
            "Metering", metering_address, lambda address: MeteringReplica(address, clock, log), log
        )

    async def start(self) -> None:
        await self.auths.start()
        await self.routers.start()
        await self.meterings.start()

    async def close(self) -> None:
        await self.routers.close()
        await self.meterings.close()
        await self.auths.close()
