"""A caller over gRPC without a socket, which takes a message when the test says so."""

import asyncio
from collections.abc import Callable

from edge.billing.hold import ChatHold
from edge.rpc.replies import AnsweredCall, StreamedReply
from legato_protos.chat.v1 import chat_pb2 as pb


class Caller:
    """Takes messages, one at a time, while it reads. It is told the id of its chat at once, which is a message like the
    others, or later and in passing."""

    def __init__(self, on_message: Callable[[], object] = bool, *, is_told_at_once: bool = False) -> None:
        self.messages: list[pb.StreamResponse] = []
        self.reads = asyncio.Event()
        self.has_left = False
        self.is_told = False
        self._on_message = on_message
        self._is_told_at_once = is_told_at_once

    def reply_to(self, hold: ChatHold, stalled_reader_s: float = 60) -> StreamedReply:
        return StreamedReply(
            AnsweredCall((), (), hold, 1, self.write, self.leave, stalled_reader_s, self.write_id, self.remaining_s)
        )

    @property
    def text(self) -> str:
        return "".join(delta.text for message in self.messages for delta in message.deltas)

    async def write(self, message: pb.StreamResponse) -> None:
        self.messages.append(message)
        self._on_message()
        await self.reads.wait()

    def leave(self) -> None:
        self.has_left = True

    async def write_id(self) -> None:
        self.is_told = True
        if self._is_told_at_once:
            await self.reads.wait()

    def remaining_s(self) -> float | None:
        return 0.0 if self._is_told_at_once else None
