"""A program that calls ChatService once, and writes down what it receives before it reads on."""

import os
import threading
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import grpc

from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from tests.support.rpc_chats import to_chat

# How it leaves: killed from outside; by the call, its deadline or the channel; with its process; or not at all.
Leaving = Literal["killed", "cancelled", "deadline", "closed", "exited", "stays"]
FINISHED: Final = b"\nfinished"


class Plan(NamedTuple):
    address: str
    metadata: tuple[tuple[str, str], ...]
    prompt: str
    stream: bool
    leaving: Leaving
    # From the call on; of one that is killed, from when it has begun its book.
    after_s: float
    # All that it receives is written here: at once, because it may be killed.
    book: Path


def run(plan: Plan) -> None:
    book = os.open(plan.book, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with grpc.insecure_channel(plan.address) as channel:
        stub = ChatServiceStub(channel)
        chat = to_chat({"model": "mezzo", "messages": [{"role": "user", "content": plan.prompt}]})
        timeout_s = plan.after_s if plan.leaving == "deadline" else None
        call: Any
        if plan.stream:
            call = stub.Stream(pb.StreamRequest(chat=chat), metadata=plan.metadata, timeout=timeout_s)
        else:
            call = stub.Complete.future(pb.CompleteRequest(chat=chat), metadata=plan.metadata, timeout=timeout_s)
        leaves = {"cancelled": call.cancel, "closed": channel.close, "exited": lambda: os._exit(0)}.get(plan.leaving)
        if leaves is not None:
            timer = threading.Timer(plan.after_s, leaves)
            timer.daemon = True
            timer.start()
        try:
            if plan.stream:
                for response in call:
                    os.write(book, _written(response))
            else:
                os.write(book, _written_whole(call.result()))
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            os.write(book, f"\nended by {call.code() or type(error).__name__}: {call.details()}".encode())


def _written(response: pb.StreamResponse) -> bytes:
    text = "".join(delta.text for delta in response.deltas).encode()
    return text + _end(response.finished.usage) if response.HasField("finished") else text


def _written_whole(response: pb.CompleteResponse) -> bytes:
    return response.message.text.encode() + _end(response.usage)


def _end(usage: pb.Usage) -> bytes:
    return FINISHED + f" {usage.prompt_tokens} {usage.completion_tokens} {usage.cost_nanos}".encode()
