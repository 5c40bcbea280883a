"""Requests that their clients gave an Idempotency-Key: the rules first, then the same on real databases."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.holds import CLAIM_LIFE_US
from services.metering.credit.prices import Prices
from services.metering.credit.records import Operation, Reserved
from services.metering.credit.store.balances import read_balances
from tests.services.metering.credit.ledger.paper import Ledger
from tests.services.metering.samples import (
    ACCOUNT,
    LIFE_S,
    ask,
    ask_all,
    ask_each,
    claimed,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
    void,
)


def test_repeat_is_refused_while_the_first_runs_and_after_it_was_charged_or_swept() -> None:
    ledger = Ledger(1_000)
    for number in (1, 2, 3):
        ledger.apply(reserve(number, claim=claimed(f"key {number}")))
    ledger.apply(settle(2, completion=1))
    ledger.past_the_deadline().apply(sweep(3))
    for number in (1, 2, 3):
        assert ledger.refusal_of(reserve(10 + number, claim=claimed(f"key {number}"))) is Reason.REQUEST_REPEATED


def test_repeat_is_told_the_first_request_s_id() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, claim=claimed()))
    with pytest.raises(LegatoError) as refusal:
        ledger.apply(reserve(2, claim=claimed()))
    assert refusal.value.original_request_id == request_id(1)
    assert request_id(1) in refusal.value.message


def test_repeat_is_refused_as_one_even_where_the_first_holds_all_the_credit() -> None:
    ledger = Ledger(100)
    ledger.apply(reserve(1, claim=claimed()))
    assert ledger.refusal_of(reserve(2, claim=claimed())) is Reason.REQUEST_REPEATED


def test_same_message_again_is_no_repeat() -> None:
    ledger = Ledger(1_000)
    first = ledger.apply(reserve(1, claim=claimed()))
    assert ledger.apply(reserve(1, claim=claimed())) == first


def test_request_that_was_given_back_frees_its_key_for_any_body() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, claim=claimed()))
    ledger.apply(void(1))
    ledger.apply(reserve(2, claim=claimed(body="another body")))
    assert ledger.refusal_of(reserve(3, claim=claimed(body="another body"))) is Reason.REQUEST_REPEATED
    # Over is over: the key that it lost does not bring the first one back.
    assert ledger.refusal_of(reserve(1, claim=claimed())) is Reason.REQUEST_RESOLVED


def test_swept_request_that_turns_out_to_have_delivered_nothing_frees_its_key() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, claim=claimed()))
    ledger.past_the_deadline().apply(sweep(1))
    ledger.apply(void(1))
    assert ledger.apply(reserve(2, claim=claimed())).held_nanos == 100


def test_another_body_under_the_same_key_is_refused_as_such() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, claim=claimed()))
    with pytest.raises(LegatoError) as refusal:
        ledger.apply(reserve(2, claim=claimed(body="another body")))
    assert (refusal.value.reason, refusal.value.param) == (Reason.IDEMPOTENCY_KEY_REUSED, "Idempotency-Key")


def test_key_is_the_account_s_own() -> None:
    ledger = Ledger(1_000)
    ledger.apply(grant(1_000, account="acct_b", grant_id="another"))
    ledger.apply(reserve(1, claim=claimed()))
    assert ledger.apply(reserve(2, claim=claimed(), account="acct_b")).held_nanos == 100


def test_key_is_free_again_when_its_day_is_over() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, claim=claimed()))
    ledger.apply(settle(1, completion=1))
    ledger.now_us += CLAIM_LIFE_US
    assert ledger.refusal_of(reserve(2, claim=claimed())) is Reason.REQUEST_REPEATED
    ledger.now_us += 1
    ledger.apply(reserve(2, claim=claimed(body="another body")))
    # A day of its own.
    ledger.now_us += CLAIM_LIFE_US
    assert ledger.refusal_of(reserve(3, claim=claimed(body="another body"))) is Reason.REQUEST_REPEATED


def test_refused_reserve_claims_nothing() -> None:
    ledger = Ledger(5)
    assert ledger.refusal_of(reserve(1, claim=claimed())) is Reason.CREDITS_EXHAUSTED
    ledger.apply(grant(1_000))
    assert ledger.apply(reserve(2, claim=claimed(body="another body"))).held_nanos == 100


async def held_in(database: Database) -> int:
    [account] = await database.read(read_balances, [ACCOUNT])
    return account.held_nanos


async def refusal_of(writer: Writer, operation: Operation[Any]) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await ask(writer, operation)
    return refusal.value


def age_claims(database: Database, by_us: int) -> None:
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"UPDATE claims SET claimed_at_us = claimed_at_us - {by_us}")


async def test_repeat_holds_nothing_and_names_the_first_while_it_runs_and_afterwards(
    database: Database, writer: Writer
) -> None:
    await ask_each(writer, grant(1_000), reserve(1, claim=claimed()))
    refusal = await refusal_of(writer, reserve(2, claim=claimed()))
    assert (refusal.reason, refusal.original_request_id) == (Reason.REQUEST_REPEATED, request_id(1))
    assert await held_in(database) == 100
    await ask(writer, settle(1, completion=3))
    assert (await refusal_of(writer, reserve(3, claim=claimed()))).reason is Reason.REQUEST_REPEATED
    other_body = reserve(4, claim=claimed(body="another body"))
    assert (await refusal_of(writer, other_body)).reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert await held_in(database) == 0
    assert await audit(database) == []


async def test_repeat_after_the_sweep_is_refused_since_the_first_may_still_be_charged(
    database: Database, prices: Prices, log: Log
) -> None:
    hasty = Writer(database, prices, -1.0, log)
    await ask_each(hasty, grant(1_000), reserve(1, claim=claimed()), sweep(1))
    assert (await refusal_of(hasty, reserve(2, claim=claimed()))).reason is Reason.REQUEST_REPEATED
    assert (await ask(hasty, settle(1, completion=3))).charged_nanos == 30
    assert (await refusal_of(hasty, reserve(2, claim=claimed()))).reason is Reason.REQUEST_REPEATED


@pytest.mark.parametrize(
    ("resolution", "later_us"),
    [(void(1), 0), (settle(1, completion=3), CLAIM_LIFE_US + 1_000)],
    ids=["given back", "a day old"],
)
async def test_free_key_is_taken_over(
    database: Database, writer: Writer, resolution: Operation[Any], later_us: int
) -> None:
    await ask_each(writer, grant(1_000), reserve(1, claim=claimed()), resolution)
    age_claims(database, later_us)
    assert (await ask(writer, reserve(2, claim=claimed(body="another body")))).held_nanos == 100
    refusal = await refusal_of(writer, reserve(3, claim=claimed(body="another body")))
    assert (refusal.reason, refusal.original_request_id) == (Reason.REQUEST_REPEATED, request_id(2))
    assert await audit(database) == []


async def test_requests_of_one_batch_see_each_other_s_claims(database: Database, writer: Writer) -> None:
    outcomes = await ask_all(
        writer,
        # Nothing was granted yet, so it claims nothing.
        reserve(1, claim=claimed()),
        grant(1_000),
        reserve(2, claim=claimed()),
        reserve(3, claim=claimed()),
        void(2),
        reserve(4, claim=claimed(body="another body")),
        reserve(5, claim=claimed()),
        reserve(6, claim=claimed("another key")),
        reserve(7),
    )
    reasons = [getattr(outcome, "reason", None) for outcome in outcomes]
    assert reasons == [
        Reason.CREDITS_EXHAUSTED, None, None, Reason.REQUEST_REPEATED, None, None, Reason.IDEMPOTENCY_KEY_REUSED,
        None, None,
    ]  # fmt: skip
    assert await held_in(database) == 300
    assert (await refusal_of(writer, reserve(8, claim=claimed()))).reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert await audit(database) == []


async def test_refused_reserve_leaves_no_claim(database: Database, writer: Writer) -> None:
    await ask(writer, grant(5))
    assert (await refusal_of(writer, reserve(1, claim=claimed()))).reason is Reason.CREDITS_EXHAUSTED
    with database.transaction(writes=False) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM claims").scalar_one() == 0


async def test_two_writers_at_once_let_one_request_have_a_key(
    database: Database, database_url: str, prices: Prices, writer: Writer, log: Log, log_text: Callable[[], str]
) -> None:
    other_database = Database(database_url, "metering")
    other = Writer(other_database, prices, LIFE_S, log)
    await ask(writer, grant(1_000_000))
    for number in range(20):
        # Keys that were claimed before and are free again, beside new ones.
        await ask_each(writer, reserve(number, claim=claimed(f"key {number}")), void(number))
    mine, theirs = await asyncio.gather(
        ask_all(writer, *(reserve(100 + number, claim=claimed(f"key {number}")) for number in range(40))),
        ask_all(other, *(reserve(200 + number, claim=claimed(f"key {number}")) for number in reversed(range(40)))),
    )
    await other.close()
    other_database.close()
    for outcomes in zip(mine, reversed(theirs), strict=True):
        admitted, refused = sorted(outcomes, key=lambda outcome: isinstance(outcome, LegatoError))
        assert isinstance(admitted, Reserved)
        assert refused.reason is Reason.REQUEST_REPEATED
    assert await held_in(database) == 40 * 100
    # They waited for each other's locks; neither had to find out that rows had moved under it.
    assert "batch.failed" not in log_text()
    assert await audit(database) == []
