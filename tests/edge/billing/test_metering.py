"""Rates, as the edge takes from them: against a real metering."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edge.billing.metering import RETRY_FOR_S
from edge.wire.responses import error_headers
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Headers
from tests.edge.metering_harness import ANN, MeteringHarness


def left(headers: Headers) -> tuple[int, int]:
    """Requests and tokens."""
    figures = dict(headers)
    return int(figures[b"x-ratelimit-remaining-requests"]), int(figures[b"x-ratelimit-remaining-tokens"])


async def refusal_of(harness: MeteringHarness, tokens: int) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        await harness.metering.admit(ANN, tokens)
    assert refused.value.reason is Reason.RATE_LIMITED
    assert refused.value.retry_after_s
    return refused.value


async def test_requests_are_let_in_until_none_is_left(metering_harness: MeteringHarness) -> None:
    assert [left((await metering_harness.metering.admit(ANN, 100)).headers) for _ in range(3)] == [
        (2, 900), (1, 800), (0, 700),
    ]  # fmt: skip
    refusal = await refusal_of(metering_harness, 100)
    assert "requests" in refusal.message
    assert left(error_headers(refusal)) == (0, 700)


async def test_tokens_are_let_in_until_too_few_are_left(metering_harness: MeteringHarness) -> None:
    await metering_harness.metering.admit(ANN, 600)
    refusal = await refusal_of(metering_harness, 600)
    assert "tokens" in refusal.message
    # Nothing of either was taken.
    assert left(error_headers(refusal)) == (2, 400)
    await metering_harness.metering.admit(ANN, 400)


async def test_rates_that_are_only_looked_at_stay_as_they_are(metering_harness: MeteringHarness) -> None:
    assert metering_harness.metering.last_rates(ANN) is None
    assert left(await metering_harness.metering.rates(ANN)) == (3, 1_000)
    assert left((await metering_harness.metering.admit(ANN, 100)).headers) == (2, 900)
    # And from now on no question is needed.
    await metering_harness.shut()
    requests, tokens = left(await metering_harness.metering.rates(ANN))
    assert requests == 2
    # The edge's own clock goes on, so some may have come back.
    assert 900 <= tokens <= 1_000


async def test_what_was_guessed_too_high_is_given_back(metering_harness: MeteringHarness) -> None:
    admission = await metering_harness.metering.admit(ANN, 900)
    admission.use(200)
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(ANN, 100)).headers) == (1, 700)


async def test_what_was_guessed_too_low_is_taken_and_may_leave_a_debt(metering_harness: MeteringHarness) -> None:
    admission = await metering_harness.metering.admit(ANN, 100)
    admission.use(3_000)
    await metering_harness.metering.settled()
    refusal = await refusal_of(metering_harness, 1)
    assert refusal.retry_after_s == pytest.approx(120, abs=2)
    assert left(error_headers(refusal)) == (2, 0)


async def test_refused_request_takes_nothing_and_its_headers_say_so(metering_harness: MeteringHarness) -> None:
    for _ in range(10):
        admission = await metering_harness.metering.admit(ANN, 900)
        assert left(admission.headers) == (2, 100)
        admission.give_back()
        assert left(admission.headers) == (3, 1_000)
        await metering_harness.metering.settled()


async def test_each_word_about_an_admission_counts_once(metering_harness: MeteringHarness) -> None:
    admission = await metering_harness.metering.admit(ANN, 100)
    admission.use(300)
    admission.use(0)
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (1, 700)
    admission.give_back()
    admission.give_back()
    admission.use(500)
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (1, 1_000)


async def test_correction_that_cannot_be_told_is_lost_and_delays_no_chat(
    metering_harness: MeteringHarness, log_text: Callable[[], str]
) -> None:
    admission = await metering_harness.metering.admit(ANN, 100)
    await metering_harness.shut()
    admission.give_back()
    async with asyncio.timeout(RETRY_FOR_S):
        await metering_harness.metering.settled()
    assert "correction.lost" in log_text()
    await metering_harness.open()
    assert left((await metering_harness.metering.admit(ANN, 100)).headers) == (1, 800)


async def test_credit_is_read_from_a_metering_that_was_away_for_a_moment(metering_harness: MeteringHarness) -> None:
    before = await metering_harness.metering.balance(ANN.account_id)
    await metering_harness.shut()
    reading = asyncio.create_task(metering_harness.metering.balance(ANN.account_id))
    await asyncio.sleep(0.1)
    await metering_harness.open()
    assert await reading == before


async def test_key_s_own_limits_go_before_the_default(metering_harness: MeteringHarness) -> None:
    principal = replace(ANN, requests_per_minute=60, tokens_per_minute=50)
    admission = await metering_harness.metering.admit(principal, 20)
    assert left(admission.headers) == (3, 30)
    admission.give_back()
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(principal, 20)).headers) == (3, 30)


async def test_request_that_takes_the_last_place_of_a_rate_does_not_stand_in_its_own_way(
    metering_harness: MeteringHarness,
) -> None:
    metering = metering_harness.metering
    for _ in range(2):
        await metering.admit(ANN, 0)
    admission = await metering.admit(ANN, 1)
    await metering.admit_longer(admission, 5_000)
    assert left(admission.headers) == (0, 0)


async def test_request_that_is_no_longer_than_announced_is_not_asked_for_again(
    metering_harness: MeteringHarness,
) -> None:
    admission = await metering_harness.metering.admit(ANN, 100)
    await metering_harness.shut()
    await metering_harness.metering.admit_longer(admission, 100)


async def test_pending_admission_is_taken_together_with_the_hold(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    admission = metering_harness.metering.prepare_admission(ANN, 100)
    assert (admission.is_pending, admission.headers) == (True, [])
    await metering_harness.hold().reserve(100, 10, admission=admission)
    assert not admission.is_pending
    assert left(admission.headers) == (2, 900)
    admission.use(250)
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (1, 750)


async def test_pending_admission_that_is_refused_leaves_neither_a_hold_nor_a_slot(
    metering_harness: MeteringHarness,
) -> None:
    before = await metering_harness.balance()
    for _ in range(3):
        await metering_harness.metering.admit(ANN, 0)
    admission = metering_harness.metering.prepare_admission(ANN, 1)
    with pytest.raises(LegatoError) as refused:
        await metering_harness.hold().reserve(100, 10, admission=admission)
    assert refused.value.reason is Reason.RATE_LIMITED
    assert left(error_headers(refused.value)) == (0, 1_000)
    assert not metering_harness.journal.taken
    assert await metering_harness.balance() == before


async def test_admitted_request_that_cannot_be_held_gives_back_what_it_took(metering_harness: MeteringHarness) -> None:
    admission = metering_harness.metering.prepare_admission(ANN, 100)
    with pytest.raises(LegatoError) as refused:
        await metering_harness.hold().reserve(100, 10, admission=admission)
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    assert left(admission.headers) == (2, 900)
    admission.give_back()
    await metering_harness.metering.settled()
    assert left(await metering_harness.metering.rates(ANN)) == (2, 900)
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (2, 1_000)


async def test_retried_hold_takes_one_request_from_the_limits(
    metering_harness: MeteringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away when the first attempt had been admitted."""
    await metering_harness.give(10**9)
    commit, failures = metering_harness._writer._commit, [DatabaseUnavailable()]

    def fail_once(operations: Any, **how: Any) -> Any:
        if failures:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(failures.pop())
            return failed
        return commit(operations, **how)

    monkeypatch.setattr(metering_harness._writer, "_commit", fail_once)
    monkeypatch.setattr(metering_harness._writer, "_write_one_by_one", metering_harness._writer._write_what_is_free)
    admission = metering_harness.metering.prepare_admission(ANN, 100)
    await metering_harness.hold().reserve(100, 10, admission=admission)
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (1, 900)


async def test_client_that_leaves_before_its_hold_is_charged_a_request(metering_harness: MeteringHarness) -> None:
    metering_harness.metering.admit_later(metering_harness.metering.prepare_admission(ANN, 100))
    await metering_harness.metering.settled()
    assert left((await metering_harness.metering.admit(ANN, 0)).headers) == (1, 1_000)
