"""The short form of `make continuations`, and that it sees what it is there to see."""

import logging
import random
from collections.abc import Callable

import pytest

from services.metering.credit.prices import read_prices
from services.metering.credit.records import Entry, Hold
from services.metering.settings import MeteringSettings
from services.router.prompts.tokens import count
from services.rules.usage import Usage
from tests.campaigns.continuations.campaign import CREDIT_NANOS, Chat, judge, run_campaign
from tests.campaigns.faults.books.ledger import Account
from tests.campaigns.faults.chat import Tokens
from tests.support.upstreams.continuing import Script

TEXTS = ["Once", " upon", " a", " time"]
PROMPT_TOKENS = 60


@pytest.mark.long
async def test_answers_that_are_cut_at_random_places_go_on_without_a_seam_and_are_charged_once() -> None:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    findings = await run_campaign(30, random.Random())
    assert findings.violations == []
    assert findings.continued > 15


def test_whatever_is_lost_repeated_or_charged_twice_is_told() -> None:
    price = read_prices(MeteringSettings().prices).current["mezzo"]

    def verdict(change: Callable[[Chat, Account], object] = lambda chat, account: None) -> str:
        question = {"role": "user", "content": "How?"}
        calls = [{"messages": [question, *begun]} for begun in ([], [{"role": "assistant", "content": "Once"}])]
        chat = Chat("chat-1", "acct", "key", Script(TEXTS, calls=calls), 1, "".join(TEXTS), "stop")
        chat.told = charged = Tokens(PROMPT_TOKENS, count(chat.text))
        nanos = price.cost_nanos(Usage(charged.prompt, 0, charged.completion))
        account = Account(CREDIT_NANOS - nanos, holds=[Hold("request", "acct", "key", "mezzo", "settled")])
        entry = Entry(
            "charge", "request", "acct", -nanos, 0,
            revenue_nanos=nanos, prompt_tokens=charged.prompt, completion_tokens=charged.completion,
        )  # fmt: skip
        account.entries.append(entry)
        change(chat, account)
        return ", ".join(each.partition(":")[0] for each in judge(chat, account, price, PROMPT_TOKENS))

    def repeat(chat: Chat, account: Account) -> None:
        chat.text = "Once Once upon a time"

    def add_an_instruction(chat: Chat, account: Account) -> None:
        chat.script.calls[1]["messages"].insert(1, {"role": "user", "content": "Go on."})

    def count_the_first_call_again(chat: Chat, account: Account) -> None:
        chat.told = Tokens(2 * PROMPT_TOKENS, count(chat.text))

    assert verdict() == ""
    assert verdict(lambda chat, account: setattr(chat, "text", "Once upon a")) == "text"
    assert verdict(repeat) == "text"
    assert verdict(lambda chat, account: setattr(chat, "error", "interrupted")) == "text"
    assert verdict(lambda chat, account: setattr(chat, "finish_reason", None)) == "end"
    assert verdict(add_an_instruction) == "prompt"
    assert verdict(count_the_first_call_again) == "usage"
    assert verdict(lambda chat, account: setattr(account, "held_nanos", 1)) == "books"
    assert verdict(lambda chat, account: account.entries.append(account.entries[0])) == "usage, books, charge"
    assert verdict(lambda chat, account: setattr(account, "balance_nanos", CREDIT_NANOS)) == "charge"
