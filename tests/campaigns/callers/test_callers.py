"""The short form of `make killed-callers`, and that it sees what it is there to see."""

import logging
import random
from pathlib import Path

import pytest

from services.metering.credit.prices import read_prices
from services.metering.credit.records import Entry, Hold
from services.metering.settings import MeteringSettings
from tests.campaigns.callers.caller import FINISHED, Plan
from tests.campaigns.callers.campaign import CREDIT_NANOS, Call, judge, run_campaign
from tests.campaigns.faults.books.ledger import Account
from tests.campaigns.faults.chat import PROVIDER_HIDDEN_TOKENS, PROVIDER_PROMPT_TOKENS, Tokens
from tests.support.upstreams.openai import Recorded, Reply
from tests.support.waiting import WAIT_TIMEOUT_S

WORDS = 9
PROMPT_TOKENS = 60
USAGE = Tokens(PROVIDER_PROMPT_TOKENS, WORDS + PROVIDER_HIDDEN_TOKENS)


@pytest.mark.long
async def test_callers_that_are_gone_at_random_moments_pay_for_what_they_received() -> None:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    findings = await run_campaign(24, random.Random(), held_s=WAIT_TIMEOUT_S)
    assert findings.violations == []
    assert findings.charged > 0


def books(*charges: Tokens, held_nanos: int = 0) -> Account:
    account = Account(CREDIT_NANOS, held_nanos, holds=[Hold("request", "acct", "key", "mezzo", "settled")])
    for charged in charges:
        nanos = 100 * charged.prompt + 210 * charged.completion
        account.balance_nanos -= nanos
        entry = Entry(
            "charge", "request", "acct", -nanos, 0,
            revenue_nanos=nanos, prompt_tokens=charged.prompt, completion_tokens=charged.completion,
        )  # fmt: skip
        account.entries.append(entry)
    return account


def test_whatever_is_lost_doubled_or_held_is_told(tmp_path: Path) -> None:
    price = read_prices(MeteringSettings().prices).current["mezzo"]
    plan = Plan("", (), "", True, "killed", 0.0, tmp_path / "book")
    call = Call("chat-1", "acct", plan)

    def verdict(account: Account, *, written: bytes, sent: int) -> str:
        plan.book.write_bytes(written)
        recorded = Recorded("POST", "/", {}, b"", 1, 0.0, writes=1 + sent)
        found = judge(call, account, price, PROMPT_TOKENS, [(recorded, Reply(repeat=WORDS))])
        return ", ".join(each.partition(":")[0] for each in found)

    counted = Tokens(PROMPT_TOKENS, 3)
    end = FINISHED + b" %d %d 1" % USAGE
    assert verdict(books(), written=b"", sent=3) == ""
    assert verdict(books(counted), written=b" rain rain", sent=3) == ""
    assert verdict(books(counted), written=b" rain" * 3, sent=4) == ""
    assert verdict(books(USAGE), written=b" rain", sent=WORDS + 1) == ""
    assert verdict(books(USAGE), written=b" rain" * WORDS + end, sent=WORDS + 1) == ""
    assert verdict(books(), written=b" rain", sent=3) == "lost"
    assert verdict(books(counted), written=b" rain" * 4, sent=5) == "lost or doubled"
    assert verdict(books(counted), written=b" rain", sent=2) == "lost or doubled"
    assert verdict(books(USAGE), written=b" rain", sent=3) == "lost or doubled"
    assert verdict(books(counted), written=b" rain" * WORDS + end, sent=WORDS + 1).startswith("lost or doubled")
    assert verdict(books(counted, counted), written=b" rain" * 3, sent=3).startswith("doubled")
    assert verdict(books(counted, held_nanos=5), written=b" rain" * 3, sent=3) == "held"
    cheap = books(counted)
    cheap.balance_nanos += 1
    assert verdict(cheap, written=b" rain" * 3, sent=3) == "lost or doubled"
