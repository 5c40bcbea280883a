"""A streamed message while its model thinks, and the betas of a request."""

from typing import Any, cast

import pytest

from edge.billing.hold import ChatHold
from edge.messages.events import MessageEvents
from edge.messages.incoming import EventReply, unknown_betas
from edge.messages.message_json import MessageForm
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.chat_harness import PROMPT_TOKENS, ChatHarness, Conversing, charged, end, piece, saying
from tests.edge.metering_harness import cost
from tests.support.message_events import kinds_of, read_events, split_events
from tests.support.waiting import until


def streamed(harness: ChatHarness, hold: ChatHold) -> EventReply:
    events = MessageEvents("msg_7", "forte", "7", MessageForm())
    return EventReply(harness._send, events, (), cast(Any, harness), 0.02)


async def two_pings(harness: ChatHarness) -> None:
    await until(lambda: harness.received.count(b"event: ping") >= 2)


async def test_pings_keep_a_message_alive_until_its_first_token(chat_harness: ChatHarness) -> None:
    async def think(conversation: Conversing) -> None:
        await two_pings(chat_harness)
        await saying(piece("Hel", 1), piece("lo", 2), end(2))(conversation)

    await chat_harness.add_routers(think)
    await chat_harness.chat(open_reply=lambda hold: streamed(chat_harness, hold)).run()
    kinds = kinds_of(chat_harness.received)
    assert kinds[:3] == ["message_start", "ping", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    # One belongs to the first block.
    assert kinds[kinds.index("content_block_start") :].count("ping") == 1
    assert read_events(chat_harness.received)[-2].usage.input_tokens == PROMPT_TOKENS
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 2)


async def test_what_fails_after_a_ping_is_told_by_an_event_and_free(chat_harness: ChatHarness) -> None:
    async def fail(conversation: Conversing) -> None:
        await two_pings(chat_harness)
        raise LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model is not available right now."))

    await chat_harness.add_routers(fail)
    await chat_harness.chat(open_reply=lambda hold: streamed(chat_harness, hold)).run()
    *_, (kind, data) = split_events(chat_harness.received)
    assert (kind, data["error"]["code"], data["request_id"]) == ("error", "upstream_error", "7")
    assert await charged(chat_harness) == 0


@pytest.mark.parametrize(
    ("given", "unknown"),
    [
        ([], []),
        ([b"claude-code-20250219, interleaved-thinking-2025-05-14"], []),
        (
            [b"context-1m-2025-08-07,effort-2025-11-24", b"files-api-2025-04-14"],
            ["context-1m-2025-08-07", "files-api-2025-04-14"],
        ),
        ([b"nonsense", b"a-2025-01-01"], ["a-2025-01-01", "*"]),
        ([b"\xff\r"], ["*"]),
        (
            [b",".join(b"beta%d-2025-01-01" % number for number in range(40))],
            [*(f"beta{number}-2025-01-01" for number in range(32)), "*"],
        ),
    ],
)
def test_betas_that_are_not_known_are_named(given: list[bytes], unknown: list[str]) -> None:
    assert unknown_betas([(b"accept", b"x"), *((b"anthropic-beta", value) for value in given)]) == unknown
