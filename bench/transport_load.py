"""The same chats over HTTP or over gRPC, from a separate process: a given number of clients, each with a chat at a
time."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import grpc.aio
import msgspec
import uvloop

from bench.chats import Case, encode_request, request_body
from bench.connections import Connections
from bench.processors import Spent, Watch
from bench.runs import SETTLE_S
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from tests.support.rpc_chats import to_chat

# The mock upstream's.
CHARACTERS_A_CHUNK: Final = 5
_TOKENS: Final = re.compile(rb'"prompt_tokens":(\d+),"completion_tokens":(\d+)')


class Order(msgspec.Struct, frozen=True):
    case: Case
    # Of the gRPC server; empty: over HTTP.
    rpc_address: str
    port: int
    api_key: str
    model: str
    seconds: float
    # Each client begins a chat so often; 0: at once after its last.
    every_s: float
    # What is measured, by name.
    processes: dict[str, int]


class Outcome(msgspec.Struct):
    # From the first chat to the last settlement.
    spent: Spent | None = None
    answered: int = 0
    chunks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    took_ms: list[float] = []


class _Told(NamedTuple):
    chunks: int
    prompt_tokens: int
    completion_tokens: int


Ask = Callable[[], Awaitable[_Told]]


async def _run(order: Order) -> Outcome:
    outcome = Outcome()
    watch = Watch(order.processes, family=os.getppid())
    if order.rpc_address:
        async with grpc.aio.insecure_channel(order.rpc_address) as channel:
            await _put_load(order, _over_rpc(order, channel), outcome)
    else:
        connections = Connections("127.0.0.1", order.port)
        await _put_load(order, _over_http(order, connections), outcome)
        connections.close()
    await asyncio.sleep(SETTLE_S)
    outcome.spent = watch.spent()
    return outcome


async def _put_load(order: Order, ask: Ask, outcome: Outcome) -> None:
    ends_at_s = time.perf_counter() + order.seconds
    period_s = order.every_s or order.case.ramp_us / 1e6
    # Not all in step.
    starts_s = [period_s * number / order.case.in_flight for number in range(order.case.in_flight)]
    await asyncio.gather(*(_ask_repeatedly(order, ask, outcome, start_s, ends_at_s) for start_s in starts_s))


async def _ask_repeatedly(order: Order, ask: Ask, outcome: Outcome, start_s: float, ends_at_s: float) -> None:
    await asyncio.sleep(start_s)
    due_at_s = time.perf_counter()
    while (began_at_s := time.perf_counter()) < ends_at_s:
        told = await ask()
        outcome.took_ms.append(1000 * (time.perf_counter() - began_at_s))
        outcome.answered += 1
        outcome.chunks += told.chunks
        outcome.prompt_tokens += told.prompt_tokens
        outcome.completion_tokens += told.completion_tokens
        if order.every_s:
            due_at_s += order.every_s
            await asyncio.sleep(max(0.0, due_at_s - time.perf_counter()))


def _over_http(order: Order, connections: Connections) -> Ask:
    request = encode_request(order.case, order.api_key, order.model, "/v1/chat/completions", {})

    async def ask() -> _Told:
        received = (await connections.ask(request)).received
        tokens = _TOKENS.search(received)
        if tokens is None:
            raise RuntimeError(received.decode())
        # The first event has the role, and no text.
        chunks = received.count(b'"content":') - 1 if order.case.chunks else 0
        return _Told(chunks, int(tokens[1]), int(tokens[2]))

    return ask


def _over_rpc(order: Order, channel: grpc.aio.Channel) -> Ask:
    stub = ChatServiceStub(channel)
    chat = to_chat(request_body(order.case, order.model))
    metadata = (("authorization", f"Bearer {order.api_key}"),)

    async def ask_whole() -> _Told:
        usage = (await stub.Complete(pb.CompleteRequest(chat=chat), metadata=metadata)).usage
        return _Told(0, usage.prompt_tokens, usage.completion_tokens)

    async def ask_stream() -> _Told:
        characters, usage = 0, pb.Usage()
        async for response in stub.Stream(pb.StreamRequest(chat=chat), metadata=metadata):
            characters += sum(len(delta.text) for delta in response.deltas)
            usage = response.finished.usage
        # A delta may have several chunks.
        return _Told(characters // CHARACTERS_A_CHUNK, usage.prompt_tokens, usage.completion_tokens)

    return ask_stream if order.case.chunks else ask_whole


def main(order: Path, outcome: Path) -> None:
    done = uvloop.run(_run(msgspec.json.decode(order.read_bytes(), type=Order)))
    outcome.write_bytes(msgspec.json.encode(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
