"""The two ways in which an answer reaches a caller over gRPC: piece by piece, or whole."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edge.billing.hold import ChatHold
from edge.chat.reply import Piece, PieceSource, Reply
from edge.rpc.ended import ended
from edge.wire.completion_json import Folded
from edge.wire.custom_tools import CustomCalls, input_of
from edge.wire.padding import filler
from edge.wire.sealed_reasoning import joined_data
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers
from services.chassis.packed_pieces import unpack_texts
from services.chassis.timing.deadlines import Deadline, TimeLimit
from services.rules.usage import named

# A message costs the edge more than the pieces in it, so what arrives this soon after another waits for more. All
# streams send at the same times, so that one write of gRPC has the messages of many.
GATHER_S: Final = 0.04
# A chat that is not answered for so long is told its id, or when half of its time is over. Not before, because gRPC
# repeats a call that fails only as long as it was told nothing.
ID_AFTER_S: Final = 1.0
# A caller that has so much to read is behind.
MOST_WAITING_BYTES: Final = 64 * 1024

_FINISH_REASONS: Final = {
    name.removeprefix("FINISH_REASON_").lower(): number for name, number in pb.FinishReason.items()
}
_CUTS: Final = {name.removeprefix("CUT_BY_").lower(): number for name, number in pb.CutBy.items()}


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """The parts of a call that its reply needs."""

    # Parameters of the request that are not used, and the tools whose input is any text.
    ignored: Sequence[str]
    custom_tools: Collection[str]
    hold: ChatHold
    created_s: int
    # Sends a message.
    write: Callable[[Any], Coroutine[object, None, None]]
    # Is called for a caller that reads nothing for so long.
    leave: Callable[[], None]
    stalled_reader_s: float
    # Sends the initial metadata.
    write_id: Callable[[], Coroutine[object, None, None]]
    # Returns the time until the caller's deadline; None: it has none.
    remaining_s: Callable[[], float | None]


class RpcReply(Reply):
    def __init__(self, call: AnsweredCall) -> None:
        super().__init__(call.ignored)
        self._call = call
        self._hold = call.hold
        self._loop = asyncio.get_running_loop()
        self._writing: asyncio.Future[None] | None = None
        self._id_due = Deadline(self._loop, self._write_id)
        self._is_dropped = False
        self._citations: list[pb.Citation] = []
        self._reasoning_data = ""
        # What ended an answer that had begun.
        self.error: LegatoError | None = None

    @property
    def headers(self) -> Headers:
        return self._headers

    def cite(self, citations: Sequence[router.Citation]) -> None:
        self._citations = [
            pb.Citation(start_index=each.start_index, end_index=each.end_index, title=each.title, url=each.url)
            for each in citations
        ]

    def add_reasoning_data(self, data: str) -> None:
        self._reasoning_data = joined_data(self._reasoning_data, data)

    def keep_alive(self) -> None:
        remaining_s = self._call.remaining_s()
        delay_s = ID_AFTER_S if remaining_s is None else min(ID_AFTER_S, remaining_s / 2)
        self._id_due.set(self._loop.time() + delay_s)

    def stop_keeping_alive(self) -> None:
        self._id_due.close()

    def drop(self) -> None:
        """Writes nothing any more: gRPC does not check whether a call that is over still exists."""
        self._is_dropped = True

    async def idle(self) -> None:
        """Waits until gRPC has taken what was written: it takes nothing else before, not even an error."""
        if self._writing is not None:
            await ended(self._writing)

    async def _unless_stalled(self, waiting: Awaitable[object]) -> None:
        """Waits, unless the caller reads nothing meanwhile."""
        try:
            with TimeLimit(self._call.stalled_reader_s, TimeoutError()):
                await waiting
        except TimeoutError:
            self._call.leave()

    def _write_id(self) -> None:
        if not self._is_dropped:
            self._writing = asyncio.ensure_future(self._call.write_id())
            self._writing.add_done_callback(self._free)

    def _hand_over(self, message: pb.StreamResponse | pb.CompleteResponse) -> None:
        if not self._is_dropped:
            self._writing = asyncio.ensure_future(self._call.write(message))
            self._writing.add_done_callback(self._free)

    def _free(self, writing: "asyncio.Future[None]") -> None:
        """Makes room for the next message. If gRPC has not taken this one, the caller is gone, which the call's task is
        told."""
        self._writing = None
        if not writing.cancelled() and writing.exception() is None:
            self._go_on()

    def _go_on(self) -> None:
        """Handles that gRPC has taken what was written."""

    def _head(self) -> dict[str, Any]:
        """Returns the fields that both kinds of answers have."""
        started = self._started or router.Started()
        return {
            "request_id": self._hold.request_id,
            "model": self._hold.class_id,
            "create_time": {"seconds": self._call.created_s},
            "max_tokens": started.max_tokens,
            "attempt": started.attempt,
            "ignored": (*self._ignored, *self._ignored_by_model),
        }

    def _ending(self, finish_reason: str, usage: Usage, cut_by: str) -> dict[str, Any]:
        return {
            "finish_reason": _FINISH_REASONS.get(finish_reason, pb.FINISH_REASON_UNSPECIFIED),
            "cut_by": _CUTS.get(cut_by, pb.CUT_BY_UNSPECIFIED),
            "usage": pb.Usage(**named(usage), cost_nanos=self._hold.charge_nanos(usage)),
        }


class WholeReply(RpcReply):
    def __init__(self, call: AnsweredCall) -> None:
        super().__init__(call)
        self._folded = Folded()

    def write(self, response: router.ChatResponse) -> None:
        self._folded.add(response)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        folded = self._folded
        calls = [self._tool_call(*call) for call in folded.tool_calls()]
        message = pb.AnswerMessage(
            text=folded.text,
            refusal=folded.refusal,
            tool_calls=calls,
            citations=self._citations,
            reasoning=folded.reasoning,
            reasoning_data=self._reasoning_data,
        )
        # The id may be on its way.
        await self.idle()
        self.delivered = self.is_open = True
        self._hand_over(
            pb.CompleteResponse(message=message, **self._head(), **self._ending(finish_reason, usage, cut_by))
        )
        await self._unless_stalled(self.idle())

    def _tool_call(self, call_id: str, name: str, arguments: str) -> pb.ToolCall:
        is_custom = name in self._call.custom_tools
        arguments = input_of(arguments) if is_custom else arguments
        return pb.ToolCall(id=call_id, name=name, arguments=arguments, is_custom=is_custom)


class StreamedReply(RpcReply):
    """A stream of messages. gRPC takes one at a time, and is done with it when the caller's window has room: what
    arrives meanwhile, or soon after, is gathered for the next."""

    is_streamed = True
    gathers_pieces = True
    _source: PieceSource

    def __init__(self, call: AnsweredCall) -> None:
        super().__init__(call)
        self._is_begun = False
        self._custom = CustomCalls(call.custom_tools)
        self._end: pb.Finished | None = None
        self._due: asyncio.TimerHandle | None = None
        self._written_at_s = -GATHER_S
        self._caught_up: asyncio.Future[None] | None = None

    @property
    def can_write(self) -> bool:
        return not self.is_behind

    async def prepare(self) -> None:
        while self.is_behind:
            self._caught_up = self._loop.create_future()
            await self._unless_stalled(self._caught_up)
            # The task of a chat that was left is cancelled here.
            await asyncio.sleep(0)

    def gather_from(self, source: PieceSource) -> None:
        self._source = source

    def write_gathered(self) -> None:
        is_much = self._source.size_bytes > MOST_WAITING_BYTES
        if self._writing is not None:
            self.is_behind = is_much
        elif is_much:
            self._send()
        elif self._due is None:
            self._schedule()

    def _schedule(self) -> None:
        now_s = self._loop.time()
        if now_s - self._written_at_s >= GATHER_S:
            self._send()
        else:
            self._due = self._loop.call_at((now_s // GATHER_S + 1) * GATHER_S, self._send)

    def _send(self) -> None:
        """Writes all that waits as one message."""
        self._stop_timer()
        if not self._is_dropped and (self._source.size_bytes or self._end is not None):
            self.delivered = self.is_open = True
            self._hand_over(self._gathered())

    def _go_on(self) -> None:
        if self._is_begun:
            # Before the next is taken from the source. It is no confirmation that the id was told.
            self._source.confirm()
        self._written_at_s = self._loop.time()
        if self._source.size_bytes:
            self._schedule()

    def _gathered(self) -> pb.StreamResponse:
        pieces = self._source.take()
        self.is_behind = False
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        message = pb.StreamResponse()
        if not self._is_begun:
            self._is_begun = True
            message.started.CopyFrom(pb.Started(**self._head()))
        _add_deltas(message, pieces, self._custom)
        if self._end is not None:
            for index, text in self._custom.take_rest():
                message.deltas.add(tool_call=pb.ToolCallDelta(index=index, arguments=text))
            message.finished.CopyFrom(self._end)
        if self.is_padded:
            message.obfuscation = filler(message.ByteSize())
        return message

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        self._end = pb.Finished(
            citations=self._citations,
            reasoning_data=self._reasoning_data,
            **self._ending(finish_reason, usage, cut_by),
        )
        await self._unless_stalled(self._flush())

    async def fail(self, error: LegatoError) -> None:
        self.error = error
        await self._unless_stalled(self._flush())

    async def _flush(self) -> None:
        await self.idle()
        self._send()
        await self.idle()

    def drop(self) -> None:
        super().drop()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def _add_deltas(message: pb.StreamResponse, pieces: Sequence[Piece], custom: CustomCalls) -> None:
    """Adds pieces in their order. Neighbouring texts are one delta."""
    texts: list[str] = []

    def add_text() -> None:
        if texts:
            message.deltas.add(text="".join(texts))
            texts.clear()

    for piece in pieces:
        if isinstance(piece, bytes):
            texts += unpack_texts([piece])
            continue
        if piece.reasoning:
            add_text()
            message.deltas.add(reasoning=piece.reasoning)
        if not piece.refusal:
            texts += piece.contents
        elif piece.contents:
            add_text()
            message.deltas.add(refusal="".join(piece.contents))
        for call in piece.tool_calls:
            add_text()
            text = custom.take(call.index, call.name, call.arguments)
            if text == "" and not call.id:
                continue
            delta = pb.ToolCallDelta(index=call.index, id=call.id, name=call.name)
            delta.arguments = call.arguments if text is None else text
            delta.is_custom = text is not None and bool(call.id)
            message.deltas.add(tool_call=delta)
    add_text()
