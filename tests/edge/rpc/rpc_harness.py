"""The edge's gRPC service on a socket, between a router that says what the test wants and a real metering."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from edge.access.maintenance import MaintenanceMode
from edge.rpc.message_turns import MessageTurns
from edge.rpc.relay import ProgramRelay
from edge.rpc.servicer import ChatServicer
from edge.rpc.serving import RelayedServer, server_options
from edge.rpc.turns_interceptor import TurnsInterceptor
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from services.chassis.http.connection_limit import ConnectionLimit
from services.chassis.load.fair_budget import FairBudget
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.listening import listen_for_rpcs
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.api_harness import AnyKey
from tests.edge.chat_harness import ChatHarness, Script
from tests.edge.metering_harness import ANN

if TYPE_CHECKING:
    from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceAsyncStub

KEY = (("authorization", "Bearer sk-legato-test"),)
CHAT = pb.Chat(model="forte", messages=[pb.Message(role=pb.ROLE_USER, text="Hi")])


class TrackedKey(AnyKey):
    """Principals for which every call has the same valid key, which the harness tracks."""

    def __init__(self, chat_harness: ChatHarness) -> None:
        self._running_keys = chat_harness.running_keys
        self.maintenance = MaintenanceMode()

    def recall(self, headers: Any) -> Any:
        return ANN

    def track_key(self, principal: Any) -> Any:
        return self._running_keys.add(principal.key_id)


class OneModel:
    def class_for(self, model: str, principal: Any) -> str:
        return "forte"


class RpcHarness:
    def __init__(self, chat_harness: ChatHarness, address: str, log: Log) -> None:
        self.chats = chat_harness
        self.address = address
        self.path = address.removeprefix("unix:")
        self._log = log
        self.channel = open_channel(address)
        self.stub: ChatServiceAsyncStub = cast(Any, ChatServiceStub(self.channel))
        self.places = FairBudget("A place", 10_000)
        self._server: RpcServer | None = None

    async def start(
        self,
        *scripts: Script,
        stalled_reader_s: float = 60,
        options: Sequence[tuple[str, Any]] = (),
        turns: MessageTurns | None = None,
        **parts: Any,
    ) -> None:
        """Serves, with routers that follow the scripts; `parts` replace those of the edge, and `options` are gRPC's."""
        await self.chats.add_routers(*scripts)
        given: dict[str, Any] = {
            "principals": TrackedKey(self.chats),
            "models": OneModel(),
            "places": self.places,
        }
        edge = replace(self.chats.edge(), **(given | parts))
        turns = turns or MessageTurns()
        served_at = f"{self.address.removesuffix('.sock')}-rpc.sock"
        relay = ProgramRelay(listen_for_rpcs(self.address), served_at, ConnectionLimit(100, SystemClock(), self._log))
        self.servicer = ChatServicer(edge, relay, turns, stalled_reader_s)
        self._server = RelayedServer(
            relay,
            self.address,
            [self.servicer],
            self._log,
            options=[*(dict(server_options(60)) | dict(options)).items()],
            interceptors=[TurnsInterceptor(turns)],
            served_at=served_at,
        )
        await self._server.start()

    async def stream(self, chat: pb.Chat = CHAT, **how: Any) -> tuple[str, grpc.aio.AioRpcError | None]:
        """Returns the text of a stream, and the error that ended it."""
        responses = []
        try:
            async for response in self.stub.Stream(pb.StreamRequest(chat=chat), metadata=KEY, **how):
                responses.append(response)  # noqa: PERF401
        except grpc.aio.AioRpcError as error:
            return text_of(responses), error
        return text_of(responses), None

    def complete(self, chat: pb.Chat = CHAT) -> Any:
        """Calls Complete as a stream of one message, whose metadata can be read before its message."""
        method = self.channel.unary_stream(
            "/legato.chat.v1.ChatService/Complete",
            pb.CompleteRequest.SerializeToString,
            pb.CompleteResponse.FromString,
        )
        return method(pb.CompleteRequest(chat=chat), metadata=KEY)

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    async def close(self) -> None:
        await self.channel.close()
        await self.stop(0)


def text_of(responses: Sequence[pb.StreamResponse]) -> str:
    return "".join(delta.text for response in responses for delta in response.deltas)


def reason_of(error: grpc.aio.AioRpcError) -> ErrorInfo:
    """Returns what an error says for programs."""
    status = rpc_status.from_call(cast(Any, error))
    assert status is not None
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    return info
