"""Calls a service with several replicas by ordinary RPCs: the stubs of its gRPC services take it for their channel."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import grpc
import grpc.aio

from services.chassis.errors import unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, from_rpc_error, was_lost
from services.chassis.rpc.former_names import former_path
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
# What a console sends beside a request: the access token of its visitor.
TokenMetadata = tuple[tuple[str, bytes]]

# How many replicas are asked where none answers.
ASKED_MOST: Final = 2


class ChannelReplica:
    """One process of a service, and the channel to it."""

    def __init__(self, address: str, server_name: str, certificates: Certificates | None) -> None:
        self.address = address
        self._connection = ChannelHolder(address, server_name, lambda channel: channel, certificates)
        self.load = 0
        self.is_leaving = False

    @property
    def channel(self) -> grpc.aio.Channel:
        return self._connection.stub

    @property
    def usable(self) -> bool:
        return self.channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def unload(self) -> None:
        self.load -= 1

    async def close(self) -> None:
        await self._connection.close()


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """A method of a service, as generated code describes it to a channel."""

    path: str
    serialize: Callable[[RequestT], bytes]
    deserialize: Callable[[bytes], ResponseT]


class ReplicaChannel:
    def __init__(
        self, title: str, server_name: str, addresses: str, certificates: Certificates | None, log: Log
    ) -> None:
        """Takes `title`, the service's name in error messages, and the one in its certificate."""
        self.title = title
        self.replicas: Replicas[ChannelReplica] = Replicas(
            title, addresses, lambda address: ChannelReplica(address, server_name, certificates), log
        )

    @property
    def channel(self) -> grpc.aio.Channel:
        """Itself, for the stubs."""
        return cast(grpc.aio.Channel, self)

    async def start(self) -> None:
        await self.replicas.start()

    async def close(self) -> None:
        await self.replicas.close()

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[RequestT], bytes],
        response_deserializer: Callable[[bytes], ResponseT],
        _registered_method: bool = False,
    ) -> Callable[..., Awaitable[ResponseT]]:
        """Returns a call for which another replica is asked where one gives no answer: it must be one that may be
        repeated."""
        method = Method(path, request_serializer, response_deserializer)

        def call(request: RequestT, *, timeout: float) -> Awaitable[ResponseT]:
            replicas = self.replicas.in_order()[:ASKED_MOST]
            return self.ask(replicas, method, request, timeout_s=timeout)

        return call

    async def ask(
        self,
        replicas: Iterable[ChannelReplica],
        method: Method[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_s: float,
        metadata: TokenMetadata | None = None,
    ) -> ResponseT:
        """Asks the replicas one after the other until one answers or refuses."""
        for replica in replicas:
            replica.load += 1

            def call(path: str, replica: ChannelReplica = replica) -> Awaitable[ResponseT]:
                begin = replica.channel.unary_unary(path, method.serialize, method.deserialize)
                # While a service restarts, a call waits for it rather than fail at once.
                return begin(request, timeout=timeout_s, metadata=metadata, wait_for_ready=True)

            try:
                return await _by_either_name(call, method.path)
            except grpc.RpcError as error:
                if not was_lost(error):
                    raise from_rpc_error(error, self.title) from None
            finally:
                replica.unload()
        raise unavailable(self.title)


async def _by_either_name(call: Callable[[str], Awaitable[ResponseT]], path: str) -> ResponseT:
    """Calls a method, under the former name of its service where a server of an older release knows only that."""
    try:
        return await call(path)
    except grpc.aio.AioRpcError as error:
        former = former_path(path)
        if former is None or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
    return await call(former)
