"""All that a chat needs, between a router that says what the test wants and a real metering."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

from edge.access.running_keys import RunningKeys
from edge.access.saturation import EdgeSaturation
from edge.api.completions import ChunkedReply
from edge.backends.exchanges import RouterReplica
from edge.billing.hold import ChatHold
from edge.billing.rate_limits import Admission
from edge.chat.chat import AdmittedRequest, Chat
from edge.chat.chat_metrics import ChatMetrics, StepTimer
from edge.chat.edge_state import EdgeState
from edge.chat.reply import Reply
from edge.http.replies import WholeHttpReply
from edge.wire.chat_request import ChatBody
from edge.wire.completion_json import Chunks, Completion
from legato_protos.metering.v1.metering_pb2 import AdmitRequest, AdmitResponse, CorrectRequest, IdempotencyClaim
from legato_protos.router.v1 import router_pb2 as pb
from legato_protos.router.v1 import router_pb2_grpc
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.exchange.methods import CallStream, StreamMethod
from services.chassis.exchange.rpc import serve_stream
from services.chassis.exchange.server import ExchangeServer
from services.chassis.load.prompt_memory import open_prompt_memory
from services.chassis.rpc.replicas import Replicas
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import SystemClock
from tests.edge.metering_harness import ANN, MeteringHarness

PROMPT_TOKENS = 20

Conversing = CallStream[pb.ChatRequest, Any]
Script = Callable[[Conversing], Awaitable[None]]


async def no_key_is_refused(key_ids: Sequence[str]) -> list[str]:
    return []


class ScriptedRouter(router_pb2_grpc.RouterServiceServicer):
    def __init__(self, script: Script, log: Log) -> None:
        self.openings: list[pb.ChatOpen] = []
        self._script = script
        self._chat = StreamMethod(pb.ChatRequest, self._serve)
        self._exchange = ExchangeServer(
            "legato.router.v1.RouterService", {"Chat": self._chat}, pb.ExchangeResponse, log
        )

    async def _serve(self, conversation: Conversing) -> None:
        self.openings.append((await conversation.receive()).open)
        await self._script(conversation)

    def Exchange(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ExchangeResponse]:
        return self._exchange.serve(request_iterator)

    def Chat(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ChatResponse]:
        return serve_stream(self._chat, context)

    async def ListModels(self, request: Any, context: Any) -> pb.ListModelsResponse:
        return pb.ListModelsResponse()

    async def CountTokens(self, request: Any, context: Any) -> pb.CountTokensResponse:
        return pb.CountTokensResponse()


class ChatHarness:
    """Everything that a chat needs, and what its client has received."""

    def __init__(self, socket_folder: Path, metering: MeteringHarness, log: Log) -> None:
        self.metering = metering
        self.received = b""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        # What the journal said whenever something was handed to the client: kind, mark, and tokens of output.
        self.journaled: list[tuple[int, bool, int]] = []
        self.running_keys = RunningKeys(no_key_is_refused)
        self.corrections: list[CorrectRequest] = []
        self.admitted_tokens = 10
        self.prompt_memory = open_prompt_memory()
        self.admission = Admission(AdmitRequest(tokens=self.admitted_tokens), self.corrections.append)
        self.admission.confirm(AdmitResponse(limit_requests=60, limit_tokens=1000))
        # Cleared while the client does not read, and how often that was waited for: the harness is the ResponseWriter.
        self.waits = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._folder = socket_folder
        self._log = log
        self._servers: list[RpcServer] = []
        self._routers: Replicas[RouterReplica] | None = None

    async def add_routers(self, *scripts: Script) -> list[ScriptedRouter]:
        addresses, routers = [], []
        for number, script in enumerate(scripts):
            routers.append(ScriptedRouter(script, self._log))
            addresses.append(f"unix:{self._folder}/router-{number}.sock")
            self._servers.append(RpcServer(addresses[-1], [routers[-1]], self._log))
            await self._servers[-1].start()
        self._routers = Replicas(
            "router", ",".join(addresses), lambda address: RouterReplica(address, self._log), self._log
        )
        await self._routers.start()
        async with asyncio.timeout(60):
            while not all(replica.usable for replica in self._routers._replicas.values()):
                await asyncio.sleep(0.01)
        return routers

    def chat(
        self,
        number: int = 7,
        *,
        stream: bool = True,
        life_s: float = 3600,
        keepalive_s: float = 10,
        messages_json: bytes = b"[]",
        key: bytes = b"",
        open_reply: Callable[[ChatHold], Reply] | None = None,
    ) -> Chat:
        memory = self.prompt_memory.hold(ANN.account_id, len(messages_json))
        edge = self.edge(life_s, keepalive_s)
        step_timer = StepTimer(edge.clock)
        admitted = AdmittedRequest(ANN, self.running_keys.add(ANN.key_id), self.admission, step_timer, memory)
        body = ChatBody("forte", stream, None, messages_json, b"", b"", b"")
        hold = self.metering.hold(number)
        reply = self._open_reply(keepalive_s, is_streamed=stream) if open_reply is None else open_reply(hold)
        claim = IdempotencyClaim(key_digest=key, body_digest=key) if key else None
        return Chat(edge, admitted, body, hold, reply, claim)

    def _open_reply(self, keepalive_s: float, *, is_streamed: bool) -> Reply:
        if is_streamed:
            return ChunkedReply(self._send, Chunks("chatcmpl-7", 1, "forte"), (), cast(Any, self), keepalive_s)
        return WholeHttpReply(self._send, Completion("chatcmpl-7", 1, "forte"), ())

    def edge(self, life_s: float = 3600, keepalive_s: float = 10) -> EdgeState:
        clock = SystemClock()
        absent: Any = None
        return EdgeState(
            principals=absent,
            models=absent,
            places=absent,
            prompt_memory=self.prompt_memory,
            metering=self.metering.metering,
            journal=self.metering.journal,
            routers=self.routers,
            saturation=EdgeSaturation(clock),
            life_s=life_s,
            keepalive_s=keepalive_s,
            clock=clock,
            log=self._log,
            metrics=ChatMetrics(Registry()),
        )

    @property
    def routers(self) -> Replicas[RouterReplica]:
        return cast(Replicas[RouterReplica], self._routers)

    async def stop_router(self, number: int) -> None:
        await self._servers[number].stop(0)

    @property
    def failures(self) -> dict[tuple[str, str, bool], int]:
        """How many chats were counted as failed, by reason and class, and whether their answers had begun."""
        counts = self.metering.metering.failures.counts
        return {(each.reason, each.class_id, each.is_cut): chats for each, chats in counts.items()}

    @property
    def events(self) -> list[Any]:
        lines = [line for line in self.received.decode().split("\n\n")[:-1] if not line.startswith(":")]
        return [line.removeprefix("data: ") if "[DONE]" in line else json.loads(line[6:]) for line in lines]

    @property
    def text(self) -> str:
        choices = [event["choices"][0] for event in self.events if isinstance(event, dict) and event.get("choices")]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    async def close(self) -> None:
        if self._routers is not None:
            await self._routers.close()
        for server in self._servers:
            await server.stop(0)

    @property
    def flow(self) -> "ChatHarness":
        return self

    @property
    def write_paused(self) -> bool:
        return not self.reads.is_set()

    async def drain(self) -> None:
        self.waits += not self.reads.is_set()
        await self.reads.wait()

    def write(self, body: bytes) -> None:
        self.received += body
        self.journaled += [
            (slot.kind, slot.marked, slot.completion_tokens) for slot in self.metering.journal.taken.values()
        ]

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.headers |= dict(message.get("headers", ()))
        if message.get("body"):
            await self.drain()
            self.write(message["body"])


def piece(text: str, output_tokens: int) -> pb.ChatResponse:
    return pb.ChatResponse(contents=[text], prompt_tokens=PROMPT_TOKENS, output_tokens=output_tokens)


def end(output_tokens: int, finish_reason: str = "stop") -> pb.ChatResponse:
    usage = Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=output_tokens)
    finished = pb.Finished(finish_reason=finish_reason, usage=usage, usage_source=pb.USAGE_SOURCE_PROVIDER)
    return pb.ChatResponse(finished=finished, prompt_tokens=PROMPT_TOKENS, output_tokens=output_tokens)


def saying(*responses: Any) -> Script:
    async def script(conversation: Conversing) -> None:
        for response in responses:
            await conversation.send(response)

    return script


async def silence(conversation: Conversing) -> None:
    await asyncio.Event().wait()


async def charged(chat_harness: ChatHarness) -> int:
    balance_nanos, held_nanos = await chat_harness.metering.balance()
    assert held_nanos == 0
    return 10**9 - balance_nanos
