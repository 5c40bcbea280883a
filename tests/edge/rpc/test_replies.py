"""What waits is gathered into one message, and a caller that does not read holds its chat back."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from edge.billing.hold import ChatHold
from edge.chat.delivery import WaitingPieces
from edge.chat.reply import Piece
from edge.rpc.replies import GATHER_S, MOST_WAITING_BYTES, StreamedReply, WholeReply
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.router.v1.router_pb2 import ChatResponse, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.packed_pieces import pack_piece
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, charged, end, piece, saying
from tests.edge.metering_harness import cost
from tests.edge.rpc.caller import Caller
from tests.edge.rpc.rpc_harness import CHAT, KEY, RpcHarness
from tests.support.waiting import until


@contextmanager
def gathering(seconds: float) -> Iterator[None]:
    """Gathers pieces for longer."""
    with patch("edge.rpc.replies.GATHER_S", seconds):
        yield


class Answer:
    """A streamed answer to a caller."""

    def __init__(self, caller: Caller, hold: ChatHold, stalled_reader_s: float) -> None:
        self.reply = caller.reply_to(hold, stalled_reader_s)
        self._waiting = WaitingPieces(hold)
        self.reply.gather_from(self._waiting)

    @classmethod
    async def begin(cls, caller: Caller, chat_harness: ChatHarness, stalled_reader_s: float = 60) -> "Answer":
        hold = chat_harness.metering.hold()
        await hold.reserve(100, 10)
        return cls(caller, hold, stalled_reader_s)

    def say(self, said: Piece) -> None:
        self._waiting.add(said, len(said) if isinstance(said, bytes) else said.ByteSize(), 20, 1)
        self.reply.write_gathered()


async def test_pieces_that_come_while_the_id_is_written_wait_for_it(chat_harness: ChatHarness) -> None:
    caller = Caller(is_told_at_once=True)
    answer = await Answer.begin(caller, chat_harness)
    reply = answer.reply
    reply.keep_alive()
    await until(lambda: caller.is_told)
    reply.stop_keeping_alive()
    answer.say(piece("One ", 1))
    finishing = asyncio.create_task(reply.finish("stop", Usage(completion_tokens=1)))
    await asyncio.sleep(0)
    assert not caller.messages
    caller.reads.set()
    await finishing
    [message] = caller.messages
    assert (message.deltas[0].text, message.HasField("finished")) == ("One ", True)


async def test_id_of_a_caller_that_has_left_is_not_written(chat_harness: ChatHarness) -> None:
    caller = Caller(is_told_at_once=True)
    answer = await Answer.begin(caller, chat_harness)
    reply = answer.reply
    reply.keep_alive()
    reply.drop()
    await asyncio.sleep(0.01)
    assert not caller.is_told


async def test_pieces_that_come_while_a_message_is_written_share_the_next(chat_harness: ChatHarness) -> None:
    caller = Caller()
    answer = await Answer.begin(caller, chat_harness)
    answer.say(piece("One ", 1))
    await until(lambda: len(caller.messages) == 1)
    answer.say(pack_piece(20, 2, ["two ", "three "]))
    answer.say(pack_piece(20, 4, ['"four" ']))
    call = ToolCallDelta(index=0, id="call_1", name="count", arguments="{}")
    answer.say(ChatResponse(contents=["five"], tool_calls=[call]))
    answer.say(ChatResponse(contents=["No."], refusal=True))
    caller.reads.set()
    await until(lambda: len(caller.messages) == 2)
    first, second = caller.messages
    assert [delta.text for delta in first.deltas] == ["One "]
    assert second.deltas[0].text == 'two three "four" five'
    assert second.deltas[1].tool_call == pb.ToolCallDelta(index=0, id="call_1", name="count", arguments="{}")
    assert [delta.refusal for delta in second.deltas[2:]] == ["No."]


async def test_messages_of_a_padded_stream_have_few_sizes(chat_harness: ChatHarness) -> None:
    sizes = []
    for word in ("a", " rain", " tomorrow", "雨雨雨"):
        caller = Caller()
        answer = await Answer.begin(caller, chat_harness)
        answer.reply.is_padded = True
        answer.say(piece("One ", 1))
        await until(lambda: len(caller.messages) == 1)  # noqa: B023
        answer.say(piece(word, 2))
        caller.reads.set()
        await until(lambda: len(caller.messages) == 2)  # noqa: B023
        assert caller.messages[1].deltas[0].text == word
        sizes.append(caller.messages[1].ByteSize())
    assert len(set(sizes)) == 1


async def test_what_still_waits_when_its_caller_is_gone_was_not_delivered(rpc_harness: RpcHarness) -> None:
    more = asyncio.Event()

    async def speak_on(conversation: Conversing) -> None:
        await saying(piece("Hel", 1))(conversation)
        await more.wait()
        await saying(piece("lo", 2))(conversation)
        await asyncio.Event().wait()

    await rpc_harness.start(speak_on)
    call = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    await call.read()
    [slot] = rpc_harness.chats.metering.journal.taken.values()
    arrived = asyncio.Event()

    def write(reply: StreamedReply, write: Callable[[StreamedReply], None] = StreamedReply.write_gathered) -> None:
        write(reply)
        arrived.set()

    # Two messages within the time that is gathered, of which the second waits.
    with gathering(3_600), patch.object(StreamedReply, "write_gathered", write):
        more.set()
        await arrived.wait()
        # An edge that is killed now has it neither sent nor counted.
        assert (slot.completion_tokens, slot.marked) == (1, True)
        call.cancel()
        await until(lambda: not rpc_harness.chats.metering.journal.taken)
    assert await charged(rpc_harness.chats) == cost(PROMPT_TOKENS, 1)


async def test_whole_answer_is_sealed_after_it_was_sent(rpc_harness: RpcHarness) -> None:
    """An edge that is killed in between has not charged what it did not send."""
    was_sealed = []

    def hand_over(reply: WholeReply, message: Any, hand_over: Callable[..., None] = WholeReply._hand_over) -> None:
        was_sealed.append(reply._hold.is_resolved)
        hand_over(reply, message)

    await rpc_harness.start(saying(piece("Hello", 1), end(1)))
    with patch.object(WholeReply, "_hand_over", hand_over):
        answer = await rpc_harness.stub.Complete(pb.CompleteRequest(chat=CHAT), metadata=KEY)
    assert (answer.message.text, was_sealed) == ("Hello", [False])
    assert await charged(rpc_harness.chats) == answer.usage.cost_nanos


async def test_chat_waits_for_a_caller_that_is_behind(chat_harness: ChatHarness) -> None:
    caller = Caller()
    answer = await Answer.begin(caller, chat_harness)
    reply = answer.reply
    answer.say(piece("One ", 1))
    await until(lambda: len(caller.messages) == 1)
    answer.say(pack_piece(20, 2, ["x" * MOST_WAITING_BYTES]))
    assert reply.is_behind
    waiting = asyncio.create_task(reply.prepare())
    await asyncio.sleep(2 * GATHER_S)
    assert not waiting.done()
    caller.reads.set()
    await waiting
    assert not reply.is_behind


async def test_caller_that_reads_nothing_for_too_long_has_left(chat_harness: ChatHarness) -> None:
    caller = Caller()
    answer = await Answer.begin(caller, chat_harness, stalled_reader_s=0.01)
    reply = answer.reply
    answer.say(piece("One ", 1))
    answer.say(pack_piece(20, 2, ["x" * MOST_WAITING_BYTES]))
    await until(lambda: len(caller.messages) == 1)
    waiting = asyncio.create_task(reply.prepare())
    await until(lambda: caller.has_left)
    waiting.cancel()


async def test_call_that_is_not_read_holds_its_chat_back_and_ends_as_left(rpc_harness: RpcHarness) -> None:
    sent = 0

    async def speak_without_end(conversation: Conversing) -> None:
        nonlocal sent
        while True:
            sent += 1
            await saying(piece("x" * 8_192, sent))(conversation)

    await rpc_harness.start(speak_without_end, stalled_reader_s=0.5)
    call = rpc_harness.stub.Stream(pb.StreamRequest(chat=CHAT), metadata=KEY)
    await call.read()
    journal = rpc_harness.chats.metering.journal
    await until(lambda: not journal.taken)
    # Windows of gRPC and of the exchange, and what waits in the edge.
    assert sent * 8_192 < 2**20
    assert 0 < await charged(rpc_harness.chats) <= cost(20, sent)
    call.cancel()
