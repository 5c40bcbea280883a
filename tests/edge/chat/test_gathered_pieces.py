"""Pieces that a transport writes several at once: counted when it takes them, and marked when the client has some."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.billing.hold import FIRST_SLICE_TOKENS
from edge.billing.journal import OPEN, SEAL, Journal
from edge.billing.recovery import seal
from edge.wire.body_reader import ClientGone
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, Script, charged, end, piece, saying, silence
from tests.edge.metering_harness import ANN, cost
from tests.edge.rpc.caller import Caller
from tests.support.waiting import until


def charged_if_killed(chat_harness: ChatHarness, tmp_path: Path) -> int | None:
    """Returns how much output the next edge would charge, if this one were killed now; None: it charges nothing."""
    copy = tmp_path / "copy.journal"
    shutil.copy(tmp_path / "edge.billing.journal", copy)
    journal = Journal(copy)
    try:
        [slot] = journal.taken.values()
        seal(slot)
        return slot.completion_tokens if slot.basis else None
    finally:
        journal.close()


async def fail(conversation: Conversing) -> None:
    raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model's answer was interrupted."))


def one_after_another(*scripts: Script) -> Script:
    async def script(conversation: Conversing) -> None:
        for each in scripts:
            await each(conversation)

    return script


async def test_pieces_are_in_the_journal_before_they_are_sent(chat_harness: ChatHarness) -> None:
    journaled: list[tuple[int, bool, int]] = []
    slots = chat_harness.metering.journal.taken
    caller = Caller(
        lambda: journaled.extend((slot.kind, slot.marked, slot.completion_tokens) for slot in slots.values())
    )
    caller.reads.set()

    async def talk(conversation: Conversing) -> None:
        for number in range(1, 4):
            await conversation.send(piece(f"{number} ", number))
            await until(lambda: len(caller.messages) == number)  # noqa: B023 - it is over before the next
        await conversation.send(end(3))

    await chat_harness.add_routers(talk)
    await chat_harness.chat(open_reply=caller.reply_to).run()
    assert caller.text == "1 2 3 "
    assert journaled == [(OPEN, False, 1), (OPEN, True, 2), (OPEN, True, 3), (SEAL, True, 3)]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 3)


async def test_answer_of_which_nothing_has_reached_its_caller_is_not_sealed(
    chat_harness: ChatHarness, tmp_path: Path
) -> None:
    """Neither once its end has arrived: a caller that has received nothing when the edge is killed pays nothing."""
    caller = Caller()
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(3)))
    chat = chat_harness.chat(open_reply=caller.reply_to)
    chatting = asyncio.create_task(chat.run())
    await until(lambda: chat._delivery.output_tokens == 3)
    assert len(caller.messages) == 1
    assert charged_if_killed(chat_harness, tmp_path) is None
    caller.reads.set()
    await chatting
    assert caller.text == "Hello"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 3)


async def test_answer_that_breaks_before_any_has_reached_its_caller_is_not_sealed(
    chat_harness: ChatHarness, tmp_path: Path
) -> None:
    caller = Caller()
    await chat_harness.add_routers(one_after_another(saying(piece("Hel", 1)), fail))
    chatting = asyncio.create_task(chat_harness.chat(open_reply=caller.reply_to).run())
    await until(lambda: bool(chat_harness.failures))
    assert len(caller.messages) == 1
    assert charged_if_killed(chat_harness, tmp_path) is None
    caller.reads.set()
    await chatting
    assert caller.text == "Hel"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)
    assert (await chat_harness.metering.read_hold(7)).end == "upstream_cut"


async def test_answer_is_sealed_before_its_end_is_sent(chat_harness: ChatHarness, tmp_path: Path) -> None:
    # While each message is written. Once it is sealed, the answer may be settled before its caller has read the end.
    charges: list[int | None] = []
    caller = Caller(lambda: charges.append(charged_if_killed(chat_harness, tmp_path)))
    more = asyncio.Event()

    async def talk(conversation: Conversing) -> None:
        await conversation.send(piece("Hello", 1))
        await more.wait()
        await conversation.send(end(5))

    caller.reads.set()
    await chat_harness.add_routers(talk)
    chatting = asyncio.create_task(chat_harness.chat(open_reply=caller.reply_to).run())
    await until(lambda: any(slot.marked for slot in chat_harness.metering.journal.taken.values()))
    assert charged_if_killed(chat_harness, tmp_path) == 1
    more.set()
    await chatting
    assert charges == [None, 5]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 5)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_caller_that_leaves_is_charged_what_the_journal_says(chat_harness: ChatHarness, is_taken: bool) -> None:
    """Be the message that was counted written by then, or under way; what waits behind it is not charged."""
    caller = Caller()

    async def talk(conversation: Conversing) -> None:
        await saying(piece("Hel", 1))(conversation)
        await until(lambda: len(caller.messages) == 1)
        await saying(piece("lo", 2), piece("!", 3))(conversation)
        await silence(conversation)

    await chat_harness.add_routers(talk)
    chat = chat_harness.chat(open_reply=caller.reply_to)
    leave: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat.run(leave.append))
    await until(lambda: chat._delivery.output_tokens == 3)
    [slot] = chat_harness.metering.journal.taken.values()
    if is_taken:
        caller.reads.set()
        await until(lambda: slot.completion_tokens == 3)
    counted_tokens = slot.completion_tokens
    leave[0]()
    with pytest.raises(ClientGone):
        await chatting
    assert counted_tokens == (3 if is_taken else 1)
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, counted_tokens)


async def test_caller_that_leaves_before_anything_was_sent_is_not_charged(chat_harness: ChatHarness) -> None:
    """The first piece waits behind the id of the chat, which is told before."""
    caller = Caller(is_told_at_once=True)
    await chat_harness.add_routers(one_after_another(_when_told(caller), saying(piece("Hel", 1)), silence))
    chat = chat_harness.chat(open_reply=caller.reply_to)
    leave: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat.run(leave.append))
    await until(lambda: chat._delivery.output_tokens == 1)
    leave[0]()
    with pytest.raises(ClientGone):
        await chatting
    assert await charged(chat_harness) == 0
    hold = await chat_harness.metering.read_hold(7)
    assert (hold.state, hold.end) == ("void", "client_gone")


async def test_answer_that_breaks_before_any_was_sent_is_an_error_alone(chat_harness: ChatHarness) -> None:
    caller = Caller(is_told_at_once=True)
    await chat_harness.add_routers(one_after_another(_when_told(caller), saying(piece("Hel", 1)), fail))
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat(open_reply=caller.reply_to).run()
    caller.reads.set()
    assert refused.value.reason is Reason.UPSTREAM_FAILED
    assert await charged(chat_harness) == 0
    assert not caller.messages


async def test_growing_hold_reports_only_what_has_reached_the_caller(
    chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metering charges that, if the machine of the edge is lost."""
    extended: list[pb.ExtendRequest] = []
    extend = chat_harness.metering.metering.extend

    async def extend_and_keep(request: pb.ExtendRequest) -> pb.ExtendResponse:
        extended.append(request)
        return await extend(request)

    monkeypatch.setattr(chat_harness.metering.metering, "extend", extend_and_keep)
    caller = Caller()
    many = 2 * FIRST_SLICE_TOKENS
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", many), end(many)))
    chatting = asyncio.create_task(chat_harness.chat(open_reply=caller.reply_to).run())
    await until(lambda: bool(extended))
    caller.reads.set()
    await chatting
    assert [request.delivered for request in extended] == [Usage()]
    assert extended[0].account_id == ANN.account_id
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, many)


def _when_told(caller: Caller) -> Script:
    async def script(conversation: Conversing) -> None:
        await until(lambda: caller.is_told)

    return script
