"""The judge of a campaign sees what it must see, and nothing else."""

import asyncio

import pytest

from services.metering.credit.ledger.spend import Spend
from services.metering.credit.prices import read_prices
from services.metering.credit.records import Entry, Hold
from services.metering.settings import MeteringSettings
from services.router.providers.http.stream import AFTER_ANSWER_S
from tests.campaigns.faults.books.judge import Circumstances, judge
from tests.campaigns.faults.books.ledger import Account, ChargeEver
from tests.campaigns.faults.chat import Chat, Customer, Tokens
from tests.campaigns.faults.harnesses.parts import STREAM
from tests.support.upstreams.openai import Recorded

PROMPT_TOKENS = 60
ANN = Customer("acct_ann", "sk-legato-ann")
PRICES = read_prices(MeteringSettings().prices).current
EDGE_DIED = Circumstances(edge_died=True)
MARK_MISSED = Circumstances(edge_died=True, mark_missed=True)


def broken_after(received: int, sent: int) -> Chat:
    """A stream that ended without a word."""
    chat = Chat(STREAM, ANN, "chat-1")
    chat.received.raw += b"HTTP/1.1 200 OK\r\n\r\n" + b" rain" * received
    ended = asyncio.Event()
    ended.set()
    chat.asked.append(Recorded("POST", "/", {}, b'{"stream": true}', 1, 0.0, writes=1 + sent, ended=ended))
    return chat


def whole(told: Tokens, usage_after_s: float) -> Chat:
    """A stream that was read to its end, with what its client was told and when its usage was sent."""
    chat = broken_after(STREAM.tokens, sent=STREAM.tokens)
    chat.received.raw += b'"usage":{"prompt_tokens":%d,"completion_tokens":%d} data: [DONE]' % told
    [recorded] = chat.asked
    for at_s in (*range(STREAM.pieces + 2), STREAM.pieces + 1 + usage_after_s / 2, STREAM.pieces + 1 + usage_after_s):
        chat.note_write(recorded, at_s)
    return chat


def books(charged: Tokens | None, *, lost: bool = False) -> Account:
    account = Account(holds=[Hold("request", ANN.account_id, "key", "mezzo", "settled")])
    if charged is not None:
        nanos = 100 * charged.prompt + 210 * charged.completion
        account.entries.append(
            Entry(
                "charge", "request", ANN.account_id, -nanos, 0,
                revenue_nanos=nanos, prompt_tokens=charged.prompt, completion_tokens=charged.completion,
            )
        )  # fmt: skip
    if lost:
        account.entries.append(Entry("loss", "request", ANN.account_id, 0, 0, revenue_nanos=6_210, loss_nanos=-6_210))
    return account


def verdict(chat: Chat, account: Account, seen: Circumstances) -> list[str]:
    given = judge([chat], {ANN.account_id: account}, {chat.tag: PROMPT_TOKENS}, PRICES, seen)
    return [violation.kind for violation in given.violations]


@pytest.mark.parametrize(("charged_tokens", "kinds"), [(1, ["lost"]), (2, []), (3, []), (4, ["doubled"])])
def test_killed_edge_charges_what_was_received_and_at_most_the_piece_under_way(
    charged_tokens: int, kinds: list[str]
) -> None:
    charged = Tokens(PROMPT_TOKENS, charged_tokens)
    assert verdict(broken_after(2, sent=3), books(charged), EDGE_DIED) == kinds


def test_nothing_received_is_not_charged() -> None:
    assert verdict(broken_after(0, sent=1), books(None), EDGE_DIED) == []
    assert verdict(broken_after(0, sent=1), books(Tokens(PROMPT_TOKENS, 1)), EDGE_DIED) == ["doubled"]


def test_silent_end_is_stuck_where_no_edge_was_killed() -> None:
    assert verdict(broken_after(2, sent=2), books(Tokens(PROMPT_TOKENS, 2)), Circumstances()) == ["stuck"]


def test_first_piece_is_free_only_where_its_mark_may_be_missing_and_the_books_say_so() -> None:
    assert verdict(broken_after(1, sent=1), books(None, lost=True), MARK_MISSED) == []
    assert verdict(broken_after(1, sent=1), books(None, lost=True), EDGE_DIED) == ["lost"]
    assert verdict(broken_after(1, sent=1), books(None), MARK_MISSED) == ["lost"]
    assert verdict(broken_after(2, sent=2), books(None, lost=True), MARK_MISSED) == ["lost"]


def test_second_charge_is_doubled() -> None:
    account = books(Tokens(PROMPT_TOKENS, 2))
    account.entries *= 2
    assert "doubled" in verdict(broken_after(2, sent=2), account, EDGE_DIED)


def test_credit_that_is_still_held_is_stuck() -> None:
    account = books(Tokens(PROMPT_TOKENS, 2))
    account.held_nanos = 1
    assert verdict(broken_after(2, sent=2), account, EDGE_DIED) == ["stuck"]


def test_lost_journal_charges_at_least_the_checkpoint() -> None:
    seen = Circumstances(
        edge_died=True, was_away=True, journal_lost=True, checkpoints={ANN.account_id: Tokens(PROMPT_TOKENS, 2)}
    )
    kinds = [verdict(broken_after(4, sent=4), books(Tokens(PROMPT_TOKENS, count)), seen) for count in (1, 2, 4, 5)]
    assert kinds == [["lost"], [], [], ["doubled"]]


def test_a_count_of_ours_is_right_only_where_the_provider_was_too_late_with_its_own() -> None:
    counted, told = Tokens(PROMPT_TOKENS, STREAM.tokens), Chat(STREAM, ANN, "chat-1").provider_usage
    slow, quick = AFTER_ANSWER_S, AFTER_ANSWER_S - 0.1
    assert verdict(whole(counted, slow), books(counted), Circumstances()) == []
    assert verdict(whole(told, slow), books(told), Circumstances()) == []
    assert verdict(whole(counted, quick), books(counted), Circumstances()) == ["doubled", "lost"]
    # What the client is told is what is charged.
    assert verdict(whole(counted, slow), books(told), Circumstances()) == ["doubled"]
    assert verdict(whole(told, slow), books(counted), Circumstances()) == ["lost"]


def limited(charged_nanos: int, *, lost_nanos: int = 0, counted_nanos: int | None = None, limit_nanos: int) -> Account:
    """An account with a daily limit, and one charge."""
    account = books(None)
    usage = Chat(STREAM, ANN, "chat-1").provider_usage
    account.entries.append(
        Entry(
            "charge", "request", ANN.account_id, -charged_nanos, 0,
            revenue_nanos=charged_nanos + lost_nanos, loss_nanos=-lost_nanos, prompt_tokens=usage.prompt,
            completion_tokens=usage.completion, reason="beyond_spend_limit" if lost_nanos else None,
        )
    )  # fmt: skip
    account.charges_ever.append(ChargeEver("key", 5, charged_nanos))
    counted_nanos = charged_nanos if counted_nanos is None else counted_nanos
    account.spends.append(
        Spend(
            "", ANN.account_id, "", day_limit_nanos=limit_nanos, day_spent_nanos=counted_nanos,
            month_spent_nanos=counted_nanos, total_spent_nanos=counted_nanos,
        )
    )  # fmt: skip
    return account


def test_a_limit_is_charged_to_its_end_and_never_exceeded_and_counts_what_the_ledger_says() -> None:
    chat = whole(Chat(STREAM, ANN, "chat-1").provider_usage, 0.0)
    # The 1,000 and 11 tokens of the provider cost 102,310.
    seen = Circumstances(left_nanos={ANN.account_id: 100_000})
    assert verdict(chat, limited(100_000, lost_nanos=2_310, limit_nanos=100_000), seen) == []
    assert verdict(chat, limited(102_310, limit_nanos=102_310), Circumstances()) == []
    assert verdict(chat, limited(102_310, limit_nanos=100_000), seen) == ["doubled", "lost", "doubled"]
    assert verdict(chat, limited(99_999, lost_nanos=2_311, limit_nanos=100_000), seen) == ["lost", "lost"]
    assert verdict(chat, limited(102_310, counted_nanos=102_309, limit_nanos=102_310), Circumstances()) == ["lost"]


def test_what_is_left_of_a_word_where_the_credit_ends_is_a_token() -> None:
    received = Chat(STREAM, ANN, "chat-1").received
    received.raw += b'HTTP/1.1 200 OK\r\n\r\ndata: {"content":" rain rain"} data: {"content":" rain ra"}'
    assert received.tokens == 4
