"""Ordinary pieces of an answer, which are delivered where they arrive, without a task."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from types import SimpleNamespace, coroutine
from typing import Any, cast

import pytest

from edge.billing.hold import FIRST_SLICE_TOKENS
from edge.billing.journal import OPEN, SEAL
from edge.chat.delivery import PieceDelivery
from edge.http.replies import StreamedHttpReply
from edge.wire.body_reader import ClientGone
from services.chassis.exchange.calls import arrive
from services.chassis.exchange.outbox import read_packed
from services.chassis.packed_pieces import pack_piece
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, charged, end, piece, saying, silence
from tests.edge.metering_harness import ANN, cost
from tests.support.python_calls import count_calls
from tests.support.waiting import until

PIECES = 50
# From the message of the exchange to the response, whose `write` is one more.
MOST_CALLS_A_PIECE = 3


@coroutine
def counting_steps(work: Coroutine[Any, Any, None], steps: list[None]) -> Generator[Any, None, None]:
    """Runs the work, and notes each time that its task is woken."""
    awaited = work.__await__()
    while True:
        steps.append(None)
        try:
            waits_for = next(awaited)
        except StopIteration:
            return
        yield waits_for


@pytest.mark.parametrize("stream", [True, False])
async def test_ordinary_piece_wakes_no_task(
    chat_harness: ChatHarness, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[None] = []
    steps_at: list[int] = []
    delivered = 0
    write = PieceDelivery._write

    def noted(self: PieceDelivery, response: Any) -> None:
        nonlocal delivered
        write(self, response)
        delivered += 1

    monkeypatch.setattr(PieceDelivery, "_write", noted)

    async def one_by_one(conversation: Conversing) -> None:
        for number in range(1, PIECES + 1):
            await conversation.send(piece("x", number))
            await until(lambda: delivered == number)  # noqa: B023 - it is over before the next
            steps_at.append(len(steps))
        await conversation.send(end(PIECES))

    await chat_harness.add_routers(one_by_one)
    await asyncio.create_task(counting_steps(chat_harness.chat(stream=stream).run(), steps))
    assert steps_at == [steps_at[0]] * PIECES
    assert len(steps) > steps_at[0]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, PIECES)


async def test_every_piece_is_in_the_journal_before_it_is_written(chat_harness: ChatHarness) -> None:
    await chat_harness.add_routers(saying(*(piece("x", number) for number in range(1, PIECES + 1)), end(PIECES)))
    await chat_harness.chat().run()
    later = [(OPEN, True, number) for number in range(2, PIECES + 1)]
    assert chat_harness.journaled == [(OPEN, False, 1), *later, (SEAL, True, PIECES)]


async def test_pieces_keep_their_order_on_either_track(chat_harness: ChatHarness) -> None:
    """Pieces arrive while the client does not read, while the hold has to grow, and while nothing is in the way."""
    tokens = [number * FIRST_SLICE_TOKENS // 10 for number in range(1, PIECES + 1)]

    async def talk(conversation: Conversing) -> None:
        for number, output_tokens in enumerate(tokens):
            if number % 10 == 5:
                chat_harness.reads.clear()
            await conversation.send(piece(f"{number} ", output_tokens))
            if number % 10 == 9:
                await until(lambda: chat_harness.waits > number // 10)  # noqa: B023 - it is over before the next
                chat_harness.reads.set()
        await conversation.send(end(tokens[-1]))

    await chat_harness.add_routers(talk)
    async with asyncio.timeout(60):
        await chat_harness.chat().run()
    assert chat_harness.text == "".join(f"{number} " for number in range(PIECES))
    assert [journaled[2] for journaled in chat_harness.journaled] == [*tokens, tokens[-1]]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, tokens[-1])


async def test_client_who_leaves_without_having_read_all_is_charged_for_what_was_written(
    chat_harness: ChatHarness,
) -> None:
    written = 5

    async def talk(conversation: Conversing) -> None:
        await saying(*(piece("x", number) for number in range(1, written + 1)))(conversation)
        await until(lambda: len(chat_harness.text) == written)
        chat_harness.reads.clear()
        await saying(*(piece("y", number) for number in range(written + 1, PIECES)))(conversation)
        await silence(conversation)

    await chat_harness.add_routers(talk)
    leave: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat_harness.chat().run(leave.append))
    await until(lambda: chat_harness.waits > 0)
    leave[0]()
    with pytest.raises(ClientGone):
        await chatting
    assert "y" not in chat_harness.text
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, written)
    assert (await chat_harness.metering.read_hold(7)).end == "client_gone"


async def test_piece_that_arrives_after_the_client_has_left_is_neither_counted_nor_written(
    chat_harness: ChatHarness,
) -> None:
    """The chat's task is cancelled by then, and has not run yet."""
    await chat_harness.add_routers(_begin)
    leave: list[Callable[[], None]] = []
    chat = chat_harness.chat()
    chatting = asyncio.create_task(chat.run(leave.append))
    await until(lambda: chat_harness.text == "x")
    leave[0]()
    assert not chat._delivery.take(piece("y", 2).SerializeToString())
    with pytest.raises(ClientGone):
        await chatting
    assert chat_harness.text == "x"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_packed_piece_is_counted_in_the_journal_before_it_is_written(chat_harness: ChatHarness) -> None:
    [router] = await chat_harness.add_routers(_in_packed_pieces(range(2, PIECES + 1)))
    await chat_harness.chat().run()
    assert router.openings[0].takes_packed
    assert chat_harness.text == "".join(f"{number} " for number in range(1, PIECES + 1))
    later = [(OPEN, True, number) for number in range(2, PIECES + 1)]
    assert chat_harness.journaled == [(OPEN, False, 1), *later, (SEAL, True, PIECES)]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, PIECES)


async def test_packed_piece_takes_few_function_calls(
    chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are most of what the edge spends on it, beside the write to the socket."""
    await chat_harness.add_routers(_begin)
    leave: list[Callable[[], None]] = []
    chat = chat_harness.chat()
    chatting = asyncio.create_task(chat.run(leave.append))
    await until(
        lambda: (
            chat._call is not None and getattr(chat._call, "_arrived", None) is not None and chat_harness.text == "x"
        )
    )
    pieces = [pack_piece(PROMPT_TOKENS, number, ["y"]) for number in range(2, PIECES + 2)]
    packed = b"".join(struct.pack("<QI", 1, len(piece)) + piece for piece in pieces)
    written: list[bytes] = []
    writer = SimpleNamespace(flow=SimpleNamespace(write_paused=False), write=written.append)
    monkeypatch.setattr(chat._reply, "_writer", writer)
    calls = count_calls(lambda: arrive({1: cast(Any, chat._call)}, read_packed(packed)))
    assert len(written) == PIECES
    # Besides these, there are the lambda, the cast, the loop over the message, and its reading.
    assert calls <= PIECES * MOST_CALLS_A_PIECE + 4
    leave[0]()
    with pytest.raises(ClientGone):
        await chatting


async def test_whole_answer_is_written_to_the_journal_four_times(chat_harness: ChatHarness) -> None:
    """Claimed, counted, sealed and freed: it is sealed as soon as it was delivered, and needs no mark before."""
    await chat_harness.add_routers(saying(piece("x", 1), end(1)))
    await chat_harness.chat(stream=False).run()
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)
    assert chat_harness.metering.journal.write_no == 4


async def test_packed_pieces_wait_in_their_order_for_a_client_who_does_not_read(chat_harness: ChatHarness) -> None:
    async def talk(conversation: Conversing) -> None:
        await conversation.send(piece("1 ", 1))
        await until(lambda: chat_harness.text == "1 ")
        chat_harness.reads.clear()
        _send_packed(conversation, range(2, 6))
        await conversation.send(piece("6 ", 6))
        _send_packed(conversation, range(7, 10))
        await until(lambda: chat_harness.waits > 0)
        assert chat_harness.text == "1 "
        chat_harness.reads.set()
        await conversation.send(end(9))

    await chat_harness.add_routers(talk)
    async with asyncio.timeout(60):
        await chat_harness.chat().run()
    assert chat_harness.text == "".join(f"{number} " for number in range(1, 10))
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 9)


async def test_packed_piece_is_not_delivered_once_its_key_is_refused(chat_harness: ChatHarness) -> None:
    async def talk(conversation: Conversing) -> None:
        await conversation.send(piece("1 ", 1))
        await until(lambda: chat_harness.text == "1 ")
        chat_harness.running_keys.refuse([ANN.key_id])
        _send_packed(conversation, [2])
        await silence(conversation)

    await chat_harness.add_routers(talk)
    async with asyncio.timeout(60):
        await chat_harness.chat().run()
    assert chat_harness.text == "1 "
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_packed_piece_that_arrives_after_the_client_has_left_is_neither_counted_nor_written(
    chat_harness: ChatHarness,
) -> None:
    await chat_harness.add_routers(_begin)
    leave: list[Callable[[], None]] = []
    chat = chat_harness.chat()
    chatting = asyncio.create_task(chat.run(leave.append))
    await until(lambda: chat_harness.text == "x")
    leave[0]()
    assert not chat._delivery.take(pack_piece(PROMPT_TOKENS, 2, ["y"]))
    with pytest.raises(ClientGone):
        await chatting
    assert chat_harness.text == "x"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_answer_that_is_not_streamed_is_not_asked_for_in_packed_pieces(chat_harness: ChatHarness) -> None:
    [router] = await chat_harness.add_routers(saying(piece("x", 1), end(1)))
    await chat_harness.chat(stream=False).run()
    assert not router.openings[0].takes_packed


def _send_packed(conversation: Conversing, numbers: Iterable[int]) -> None:
    assert conversation.send_packed is not None
    for number in numbers:
        conversation.send_packed(pack_piece(PROMPT_TOKENS, number, [f"{number} "]))


def _in_packed_pieces(numbers: Sequence[int]) -> Callable[[Conversing], Awaitable[None]]:
    async def talk(conversation: Conversing) -> None:
        await conversation.send(piece("1 ", 1))
        _send_packed(conversation, numbers)
        await conversation.send(end(numbers[-1]))

    return talk


async def test_mistake_of_ours_in_the_pass_ends_its_own_chat_alone(
    chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = StreamedHttpReply.write

    def fail_at_the_third(self: StreamedHttpReply, response: Any) -> None:
        if response.output_tokens == 3:
            raise ValueError("a mistake")
        write(self, response)

    monkeypatch.setattr(StreamedHttpReply, "write", fail_at_the_third)
    await chat_harness.add_routers(saying(*(piece("x", number) for number in range(1, 6)), end(5)))
    await chat_harness.chat().run()
    assert chat_harness.text == "xx"
    assert chat_harness.events[-1]["error"]["code"] == "internal_error"
    monkeypatch.undo()
    chat_harness.received = b""
    await chat_harness.chat(8).run()
    assert chat_harness.text == "xxxxx"


async def _begin(conversation: Conversing) -> None:
    await conversation.send(piece("x", 1))
    await silence(conversation)
