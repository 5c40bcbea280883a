"""One chat between a router that says what the test wants and a real metering."""

import asyncio
import json

import pytest

from edge.billing.hold import FIRST_SLICE_TOKENS, LONGEST_OUTPUT_TOKENS
from edge.billing.journal import OPEN, SEAL
from edge.chat.chat import STAGES_AFTER, ChatStage
from legato_protos.metering.v1.metering_pb2 import END_CLIENT_GONE, ExtendRequest, ExtendResponse
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.holds import WHOLE_ANSWERS_FREE
from services.metering.credit.ledger.spend import SpendLimits
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, charged, end, piece, saying
from tests.edge.metering_harness import ANN, JOURNAL_SLOTS, OUTPUT_NANOS, cost


def note_extensions(chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch) -> list[ExtendRequest]:
    """Those that metering is asked for from now on."""
    extend = chat_harness.metering.metering.extend
    extended: list[ExtendRequest] = []

    async def noted(request: ExtendRequest) -> ExtendResponse:
        extended.append(request)
        return await extend(request)

    monkeypatch.setattr(chat_harness.metering.metering, "extend", noted)
    return extended


async def test_answer_is_relayed_and_charged_by_the_providers_count(chat_harness: ChatHarness) -> None:
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(2)))
    await chat_harness.chat().run()
    assert chat_harness.text == "Hello"
    assert chat_harness.events[-1] == "[DONE]"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 2)


async def test_what_is_relayed_is_counted_before_and_the_end_is_sealed_before_it_is_told(
    chat_harness: ChatHarness,
) -> None:
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(3)))
    await chat_harness.chat().run()
    assert chat_harness.journaled == [(OPEN, False, 1), (OPEN, True, 2), (SEAL, True, 3)]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 3)
    assert chat_harness.metering.journal.taken == {}


async def test_pieces_that_come_at_once_are_each_counted_before_they_are_relayed(chat_harness: ChatHarness) -> None:
    both = pb.ChatResponse(contents=["Hel", "lo"], prompt_tokens=PROMPT_TOKENS, output_tokens=2)
    both.MergeFrom(end(2))
    await chat_harness.add_routers(saying(both))
    await chat_harness.chat().run()
    assert chat_harness.journaled == [(OPEN, False, 2), (SEAL, True, 2)]


async def test_whole_answer_is_sealed_only_after_it_was_relayed(chat_harness: ChatHarness) -> None:
    """The answer is the first piece: an edge that dies before sending must not charge it."""
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(2)))
    await chat_harness.chat(stream=False).run()
    assert chat_harness.journaled == [(OPEN, False, 2)]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 2)
    assert (await chat_harness.metering.read_hold(7)).basis == "provider"
    assert chat_harness.metering.journal.taken == {}


@pytest.mark.parametrize("stream", [True, False])
async def test_receipt_has_the_times_of_an_answer_which_is_no_failure(chat_harness: ChatHarness, stream: bool) -> None:
    """An answer that is not streamed has no first token: it comes as a whole."""
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(2)))
    await chat_harness.chat(stream=stream).run()
    await charged(chat_harness)
    hold = await chat_harness.metering.read_hold(7)
    assert hold.duration_ms is not None
    assert (hold.first_token_ms is not None) == stream
    assert (hold.first_token_ms or 0) <= hold.duration_ms
    assert not chat_harness.failures


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_with_nothing_in_it_is_told_and_not_charged(chat_harness: ChatHarness, stream: bool) -> None:
    await chat_harness.add_routers(saying(end(0)))
    await chat_harness.chat(stream=stream).run()
    assert chat_harness.status == 200
    assert await charged(chat_harness) == 0
    assert chat_harness.metering.journal.taken == {}


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_that_was_all_thought_is_charged_by_the_providers_count(
    chat_harness: ChatHarness, stream: bool
) -> None:
    await chat_harness.add_routers(saying(end(9, "length")))
    await chat_harness.chat(stream=stream).run()
    assert chat_harness.status == 200
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 9)


async def test_chat_for_which_the_journal_has_no_room_is_refused_before_anything_is_held(
    chat_harness: ChatHarness,
) -> None:
    journal = chat_harness.metering.journal
    slots = [journal.claim(f"{number:032x}", ANN.account_id) for number in range(100, 100 + JOURNAL_SLOTS)]
    [router] = await chat_harness.add_routers(saying(piece("Hello", 1), end(1)))
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat().run()
    assert (refused.value.reason, refused.value.wire.http_status) == (Reason.UNAVAILABLE, 503)
    assert router.openings == []
    assert await charged(chat_harness) == 0
    slots[0].free()
    await chat_harness.chat().run()
    assert chat_harness.text == "Hello"


async def test_rate_of_tokens_is_corrected_to_what_is_charged(chat_harness: ChatHarness) -> None:
    counted_tokens, charged_tokens = 2, 5
    await chat_harness.add_routers(saying(piece("Hello", counted_tokens), end(charged_tokens)))
    await chat_harness.chat().run()
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, charged_tokens)
    corrected_tokens = PROMPT_TOKENS + charged_tokens - chat_harness.admitted_tokens
    assert [correction.tokens for correction in chat_harness.corrections] == [corrected_tokens]


@pytest.mark.parametrize("stream", [True, False])
async def test_router_that_sends_more_than_the_credit_covers_is_cut_with_length(
    chat_harness: ChatHarness, stream: bool
) -> None:
    tokens_of_a_million_dollars = 10**9
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", tokens_of_a_million_dollars)))
    await chat_harness.chat(stream=stream).run()
    if stream:
        assert chat_harness.text == "Hel"
        assert chat_harness.events[-3]["choices"][0]["finish_reason"] == "length"
    else:
        choice = json.loads(chat_harness.received)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hel", "length")
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


@pytest.mark.parametrize(("stream", "tokens"), [(True, FIRST_SLICE_TOKENS), (False, LONGEST_OUTPUT_TOKENS)])
async def test_answer_that_is_not_streamed_is_held_whole_before_it_is_asked_for(
    chat_harness: ChatHarness, stream: bool, tokens: int
) -> None:
    """An answer in one piece cannot be stopped where the credit ends."""
    await chat_harness.metering.give(WHOLE_ANSWERS_FREE * cost(200, LONGEST_OUTPUT_TOKENS), "more")
    [router] = await chat_harness.add_routers(saying(piece("Hello", 1), end(1)))
    await chat_harness.chat(stream=stream).run()
    assert router.openings[0].grant.output_tokens == tokens


async def test_first_piece_that_other_requests_are_in_the_way_of_is_worth_a_retry(chat_harness: ChatHarness) -> None:
    """The piece exceeds the hold; the credit for it is there, but held."""
    tokens_of_the_balance = 10**9 * 1_000_000 // OUTPUT_NANOS - PROMPT_TOKENS
    other = chat_harness.metering.hold(1)
    await other.reserve(100, None)
    await chat_harness.add_routers(saying(piece("Hello", tokens_of_the_balance)))
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat().run()
    assert (refused.value.reason, refused.value.wire.http_status) == (Reason.CREDITS_HELD, 429)
    other.void(END_CLIENT_GONE)
    assert await charged(chat_harness) == 0


async def test_router_that_sends_ever_more_than_is_held_has_the_hold_doubled(
    chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    extended = note_extensions(chat_harness, monkeypatch)
    most_tokens = 3 * FIRST_SLICE_TOKENS
    await chat_harness.add_routers(
        saying(*(piece("x", tokens) for tokens in range(1, most_tokens, 100)), end(most_tokens))
    )
    await chat_harness.chat().run()
    # To twice the first slice and to twice that, though many pieces were beyond what was held.
    assert len(extended) == 2
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, most_tokens)


@pytest.mark.parametrize("stream", [True, False])
async def test_last_piece_is_passed_on_and_charged_though_it_is_more_than_was_held(
    chat_harness: ChatHarness, stream: bool
) -> None:
    tokens = FIRST_SLICE_TOKENS + 100
    all_at_once = piece("Hello", tokens)
    all_at_once.MergeFrom(end(tokens))
    await chat_harness.add_routers(saying(all_at_once))
    await chat_harness.chat(stream=stream).run()
    assert (chat_harness.status, b"Hello" in chat_harness.received, b'"stop"' in chat_harness.received) == (
        200,
        True,
        True,
    )
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, tokens)


@pytest.mark.parametrize(("stream", "delivered_tokens"), [(True, 1), (False, 0)])
async def test_hold_that_grows_is_told_what_its_client_has_and_nothing_of_a_whole_answer(
    chat_harness: ChatHarness, monkeypatch: pytest.MonkeyPatch, stream: bool, delivered_tokens: int
) -> None:
    """That is what is charged where no edge is left to settle."""
    extended = note_extensions(chat_harness, monkeypatch)
    most_tokens = FIRST_SLICE_TOKENS + 100
    await chat_harness.add_routers(saying(piece("Hel", 1), piece("lo", most_tokens), end(most_tokens)))
    await chat_harness.chat(stream=stream).run()
    assert [request.delivered.completion_tokens for request in extended] == [delivered_tokens]
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, most_tokens)


async def test_answer_ends_with_its_time(chat_harness: ChatHarness) -> None:
    async def talk_on(conversation: Conversing) -> None:
        for number in range(1, 10_000):
            await conversation.send(piece("x", number))
            await asyncio.sleep(0.01)

    await chat_harness.add_routers(talk_on)
    async with asyncio.timeout(60):
        await chat_harness.chat(life_s=0.3).run()
    assert chat_harness.events[-3]["choices"][0]["finish_reason"] == "length"
    assert chat_harness.events[-1] == "[DONE]"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, len(chat_harness.text))


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_that_begins_when_its_time_is_over_is_the_models_failure_and_free(
    chat_harness: ChatHarness, stream: bool
) -> None:
    async def say_late(conversation: Conversing) -> None:
        await asyncio.sleep(0.3)
        await conversation.send(piece("Hello", 1))
        await conversation.send(end(1))

    await chat_harness.add_routers(say_late)
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat(stream=stream, life_s=0.2).run()
    assert (refused.value.reason, refused.value.wire.http_status) == (Reason.UPSTREAM_FAILED, 502)
    assert await charged(chat_harness) == 0


async def test_need_of_the_router_is_answered_with_a_larger_grant(chat_harness: ChatHarness) -> None:
    grants: list[pb.Grant] = []

    async def ask(conversation: Conversing) -> None:
        await conversation.send(pb.ChatResponse(need=pb.Need(prompt_tokens=500, output_tokens=9000)))
        grants.append((await conversation.receive()).grant)
        await conversation.send(piece("Hello", 1))
        await conversation.send(end(1))

    [router] = await chat_harness.add_routers(ask)
    await chat_harness.chat().run()
    assert router.openings[0].grant.output_tokens < 9000
    assert (grants[0].prompt_tokens, grants[0].output_tokens, grants[0].last) == (500, 9000, False)
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_need_that_metering_does_not_answer_is_answered_with_what_is_held(chat_harness: ChatHarness) -> None:
    """The router need not guess how long to wait: the need may have stood behind what a slow client had to take."""
    grants: list[pb.Grant] = []

    async def ask(conversation: Conversing) -> None:
        await chat_harness.metering.shut()
        await conversation.send(pb.ChatResponse(need=pb.Need(prompt_tokens=PROMPT_TOKENS, output_tokens=9000)))
        grants.append((await conversation.receive()).grant)
        await chat_harness.metering.open()
        await conversation.send(piece("Hello", 1))
        await conversation.send(end(1))

    await chat_harness.add_routers(ask)
    async with asyncio.timeout(60):
        await chat_harness.chat().run()
    assert FIRST_SLICE_TOKENS <= grants[0].output_tokens < 9000
    assert not grants[0].last
    assert chat_harness.text == "Hello"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_chat_does_not_go_back_to_an_earlier_stage(chat_harness: ChatHarness) -> None:
    await chat_harness.add_routers(saying(piece("Hello", 1), end(1)))
    chat = chat_harness.chat()
    with pytest.raises(RuntimeError, match="RESERVING cannot become ANSWERING"):
        chat._enter(ChatStage.ANSWERING)
    await chat.run()
    for stage in ChatStage:
        with pytest.raises(RuntimeError, match="ENDED cannot become"):
            chat._enter(stage)


def test_client_that_disconnects_cancels_a_chat_only_until_its_result_is_known() -> None:
    cancelled_by_client = {stage for stage, following in STAGES_AFTER.items() if ChatStage.CLIENT_GONE in following}
    assert cancelled_by_client == {ChatStage.RESERVING, ChatStage.ROUTING, ChatStage.ANSWERING}
    assert all(ChatStage.ENDED in following for stage, following in STAGES_AFTER.items() if stage != ChatStage.ENDED)


async def test_prompt_that_a_spend_limit_does_not_cover_is_refused_as_that(chat_harness: ChatHarness) -> None:
    async def refuse(conversation: Conversing) -> None:
        await conversation.send(pb.ChatResponse(need=pb.Need(prompt_tokens=5_000, output_tokens=1)))
        assert (await conversation.receive()).grant.last
        raise LegatoError(
            Reason.CREDITS_EXHAUSTED, Sentence.verbatim("The account's credit does not cover the prompt.")
        )

    await chat_harness.metering.limit(SpendLimits(total_nanos=cost(1_000, 0)))
    await chat_harness.add_routers(refuse)
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat().run()
    assert refused.value.reason is Reason.SPEND_LIMIT_SPENT
    assert refused.value.message == "The key's total spend limit is spent. Raise the limit to continue."
    assert await charged(chat_harness) == 0
