"""Holds against a real metering that comes and goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.backends.exchanges import MeteringReplica
from edge.billing.hold import (
    FIRST_SLICE_TOKENS,
    LONGEST_OUTPUT_TOKENS,
    MOST_OUTPUT_TOKENS,
    ChatHold,
)
from edge.billing.metering import Metering
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.client import ExchangeBroken
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.credit.ledger.holds import WHOLE_ANSWERS_FREE
from services.metering.credit.ledger.spend import SpendLimits
from services.metering.credit.prices import Price
from services.rules.model_classes import CLASSES
from tests.edge.metering_harness import ANN, MeteringHarness, cost


async def test_first_slice_is_held_before_anything_is_used(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    grant = await metering_harness.hold().reserve(100, None)
    assert (grant.prompt_tokens, grant.output_tokens, grant.last) == (100, FIRST_SLICE_TOKENS, False)
    assert await metering_harness.balance() == (10**9, cost(100, FIRST_SLICE_TOKENS))


async def test_poor_account_holds_what_it_has(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(cost(100, 50))
    grant = await metering_harness.hold().reserve(100, 1000)
    assert grant.output_tokens == 50


@pytest.mark.parametrize(
    ("max_tokens", "whole", "held_tokens"),
    [
        (10_000, True, 10_000),
        (10_000, False, FIRST_SLICE_TOKENS),
        (100, True, 100),
        # Of those, the account could not pay for so many.
        (None, True, FIRST_SLICE_TOKENS),
        (20_000, True, FIRST_SLICE_TOKENS),
    ],
)
async def test_all_of_a_whole_answer_is_held_where_the_account_has_credit_for_many(
    metering_harness: MeteringHarness, max_tokens: int | None, whole: bool, held_tokens: int
) -> None:
    await metering_harness.give(WHOLE_ANSWERS_FREE * cost(100, 10_000))
    grant = await metering_harness.hold().reserve(100, max_tokens, whole=whole)
    assert grant.output_tokens == held_tokens
    assert (await metering_harness.balance())[1] == cost(100, held_tokens)


async def test_longest_answer_is_held_for_a_rich_account_that_names_no_limit(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**12)
    for max_tokens in (None, 10 * LONGEST_OUTPUT_TOKENS):
        grant = await metering_harness.hold(max_tokens or 1).reserve(100, max_tokens, whole=True)
        assert grant.output_tokens == LONGEST_OUTPUT_TOKENS


async def test_empty_account_is_refused_and_leaves_nothing_behind(metering_harness: MeteringHarness) -> None:
    hold = metering_harness.hold()
    with pytest.raises(LegatoError) as refused:
        await hold.reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    hold.void(pb.END_REFUSED)
    assert await metering_harness.balance() == (0, 0)


async def test_credit_that_is_held_elsewhere_is_worth_a_retry(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(cost(100, 10))
    await metering_harness.hold(1).reserve(100, 10)
    with pytest.raises(LegatoError) as refused:
        await metering_harness.hold(2).reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_HELD
    assert refused.value.retry_after_s


async def test_key_that_runs_as_many_as_it_may_leaves_nothing_behind(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    limited = replace(ANN, concurrent_requests=1)
    first, second = (
        ChatHold(metering_harness.metering, metering_harness.journal, limited, f"{number:032x}", "forte")
        for number in (1, 2)
    )
    await first.reserve(100, 10)
    with pytest.raises(LegatoError) as refused:
        await second.reserve(100, 10)
    assert refused.value.reason is Reason.TOO_MANY_AT_ONCE
    assert refused.value.retry_after_s
    # Its slot is free again, and no void need be sent.
    assert second.is_resolved
    first.settle(Usage(prompt_tokens=90, completion_tokens=7), pb.BASIS_PROVIDER, pb.END_COMPLETE)
    await metering_harness.metering.settled()
    await second.reserve(100, 10)
    second.void(pb.END_CLIENT_GONE)


async def test_hold_grows_until_the_last_of_the_credit(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(cost(100, 9000))
    hold = metering_harness.hold()
    await hold.reserve(100, None)
    grown = await hold.grow(100, 8000, Usage(prompt_tokens=100, completion_tokens=2048))
    assert (grown.output_tokens, grown.last) == (8000, False)
    last = await hold.grow(100, 16000, Usage(prompt_tokens=100, completion_tokens=4000))
    assert (last.output_tokens, last.last, hold.spent) == (9000, True, True)
    assert hold.covered_output_tokens(100) == 9000


async def test_growth_to_what_is_held_already_does_not_spend_the_credit(metering_harness: MeteringHarness) -> None:
    """A prompt may turn out longer than it was guessed, beside less output than was held."""
    await metering_harness.give(cost(100, 9000))
    hold = metering_harness.hold()
    await hold.reserve(100, None)
    grant = await hold.grow(110, 4000, Usage())
    assert (grant.output_tokens >= 4000, grant.last, hold.spent) == (True, False, False)


async def test_growth_that_other_requests_are_in_the_way_of_is_worth_a_retry(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(cost(1000, 0))
    await metering_harness.hold(1).reserve(100, 100)
    hold = metering_harness.hold(2)
    await hold.reserve(100, 10)
    for prompt_tokens, is_held in ((1000, False), (900, True), (100, False)):
        grant = await hold.grow(prompt_tokens, 4096, Usage())
        assert grant.last
        assert grant.held_elsewhere is is_held
    assert hold.refusal(900, 1).reason is Reason.CREDITS_HELD
    assert hold.refusal(900, 1).retry_after_s
    assert hold.refusal(1000, 1).reason is Reason.CREDITS_EXHAUSTED


async def test_growth_that_a_spend_limit_ends_is_refused_as_that(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    await metering_harness.limit(SpendLimits(day_nanos=cost(500, 0)))
    daily = metering_harness.hold(1)
    await daily.reserve(100, 10)
    assert (await daily.grow(1000, 1, Usage())).last
    refused = daily.refusal(1000, 1)
    assert (refused.reason, refused.message[:21]) == (Reason.SPEND_LIMIT_SPENT, "This request costs mo")
    assert daily.spend_limit_refusal == refused
    daily.settle(Usage(prompt_tokens=300), pb.BASIS_COUNTED, pb.END_COMPLETE)
    await metering_harness.metering.settled()
    second = metering_harness.hold(2)
    await second.reserve(100, 10)
    await second.grow(400, 1, Usage())
    refused = second.refusal(400, 1)
    assert refused.reason is Reason.SPEND_LIMIT_EXCEEDED
    assert refused.retry_after_s is not None
    assert 0 < refused.retry_after_s <= 86_400


async def test_growth_that_credit_ends_is_not_refused_as_a_spend_limit(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(cost(500, 0))
    await metering_harness.limit(SpendLimits(day_nanos=cost(600, 0)))
    hold = metering_harness.hold()
    await hold.reserve(100, 10)
    await hold.grow(1000, 1, Usage())
    assert hold.refusal(1000, 1).reason is Reason.CREDITS_EXHAUSTED


@asynccontextmanager
async def priced(
    socket_folder: Path, tmp_path: Path, log: Log, input_nanos: int, output_nanos: int
) -> AsyncIterator[MeteringHarness]:
    """Prices a million tokens."""
    price = Price(input_nanos, input_nanos, output_nanos)
    harness = MeteringHarness(socket_folder, tmp_path, log, dict.fromkeys(CLASSES, price))
    await harness.start()
    try:
        yield harness
    finally:
        await harness.close()


@pytest.mark.parametrize("prompt_tokens", [1001, 1002, 1003])
async def test_grant_is_what_was_asked_for_where_a_token_costs_a_fraction(
    prompt_tokens: int, socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    """A grant one token short would have the router ask for that token for ever."""
    async with priced(socket_folder, tmp_path, log, input_nanos=37_500_000, output_nanos=112_500_000) as harness:
        await harness.give(10**9)
        hold = harness.hold()
        assert (await hold.reserve(prompt_tokens, 1)).output_tokens == 1
        for output_tokens in (2, 5, 1001):
            grant = await hold.grow(prompt_tokens, output_tokens, Usage())
            assert (grant.output_tokens, grant.last) == (output_tokens, False)
            assert hold.covered_output_tokens(prompt_tokens) == output_tokens


async def test_output_that_costs_nothing_is_granted_with_its_prompt_alone(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    async with priced(socket_folder, tmp_path, log, input_nanos=10**9, output_nanos=0) as harness:
        await harness.give(7_000_000)
        hold = harness.hold()
        assert (await hold.reserve(5000, None)).output_tokens == MOST_OUTPUT_TOKENS
        too_long = await hold.grow(7001, 100, Usage())
        assert (too_long.output_tokens, too_long.last) == (0, True)
        assert (await hold.grow(7000, 100, Usage())).output_tokens == MOST_OUTPUT_TOKENS


async def test_what_was_used_is_charged_once(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    hold = metering_harness.hold()
    await hold.reserve(100, 10)
    hold.settle(Usage(prompt_tokens=90, completion_tokens=7), pb.BASIS_PROVIDER, pb.END_COMPLETE)
    hold.settle(Usage(prompt_tokens=90, completion_tokens=99), pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
    hold.void(pb.END_REFUSED)
    assert await metering_harness.balance() == (10**9 - cost(90, 7), 0)


async def test_nothing_delivered_is_not_charged(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    hold = metering_harness.hold()
    await hold.reserve(100, 10)
    hold.void(pb.END_CLIENT_GONE)
    assert await metering_harness.balance() == (10**9, 0)


async def test_reserve_rides_out_a_restart_of_metering(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    await metering_harness.shut()
    reserving = asyncio.create_task(metering_harness.hold().reserve(100, 10))
    await asyncio.sleep(0.1)
    await metering_harness.open()
    async with asyncio.timeout(60):
        assert (await reserving).output_tokens == 10


async def test_client_who_leaves_while_credit_is_held_leaves_no_hold_behind(
    metering_harness: MeteringHarness,
) -> None:
    await metering_harness.give(10**9)
    hold = metering_harness.hold()
    reserving = asyncio.create_task(hold.reserve(100, 10))
    await asyncio.sleep(0)
    reserving.cancel()
    await asyncio.gather(reserving, return_exceptions=True)
    hold.void(pb.END_CLIENT_GONE)
    assert await metering_harness.balance() == (10**9, 0)


class LosesTheFirstAnswer:
    """Stands between the edge and metering: the first question arrives, its answer does not."""

    def __init__(self, replicas: Replicas[MeteringReplica]) -> None:
        self._replicas = replicas
        self._has_lost = False

    def for_account(self, account_id: str) -> "LosesTheFirstAnswer":
        return self

    def home_of(self, account_id: str) -> str:
        return ""

    def call(self, *question: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._ask(*question))

    async def _ask(self, *question: Any) -> Any:
        answer = await asyncio.gather(
            self._replicas.for_account(ANN.account_id).call(*question), return_exceptions=True
        )
        if not self._has_lost:
            self._has_lost = True
            raise ExchangeBroken("Metering")
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]


async def test_refusal_of_a_repeated_question_is_made_to_last(metering_harness: MeteringHarness, log: Log) -> None:
    """A copy that is still under way must not hold credit later, when no process is left to give it back."""
    await metering_harness.give(1)
    metering = Metering(LosesTheFirstAnswer(metering_harness.replicas), SystemClock(), log)  # type: ignore[arg-type]
    hold = ChatHold(metering, metering_harness.journal, ANN, f"{1:032x}", "forte")
    with pytest.raises(LegatoError) as refused:
        await hold.reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    hold.void(pb.END_REFUSED)
    await metering.settled()
    await metering_harness.give(10**9, "more")
    with pytest.raises(LegatoError) as late:
        await metering_harness.hold(1).reserve(100, 10)
    assert late.value.reason is Reason.REQUEST_RESOLVED


CLAIM = pb.IdempotencyClaim(key_digest=b"k" * 32, body_digest=b"b" * 32)
OTHER_BODY = pb.IdempotencyClaim(key_digest=b"k" * 32, body_digest=b"c" * 32)


async def test_repeat_under_an_idempotency_key_holds_nothing_and_leaves_nothing_behind(
    metering_harness: MeteringHarness,
) -> None:
    await metering_harness.give(10**9)
    await metering_harness.hold(1).reserve(100, 10, CLAIM)
    for number, claim, reason in (
        (2, CLAIM, Reason.REQUEST_REPEATED), (3, OTHER_BODY, Reason.IDEMPOTENCY_KEY_REUSED)
    ):  # fmt: skip
        hold = metering_harness.hold(number)
        with pytest.raises(LegatoError) as refused:
            await hold.reserve(100, 10, claim)
        assert refused.value.reason is reason
        # Its slot is free again, and no void need be sent.
        assert hold.is_resolved
        await metering_harness.metering.settled()
        assert (await metering_harness.hold(number).reserve(100, 10)).output_tokens == 10
    assert await metering_harness.balance() == (10**9, 3 * cost(100, 10))


async def test_repeat_that_was_asked_twice_is_made_to_last(metering_harness: MeteringHarness, log: Log) -> None:
    """The key may be given back before the copy that is still under way arrives."""
    await metering_harness.give(10**9)
    first = metering_harness.hold(1)
    await first.reserve(100, 10, CLAIM)
    metering = Metering(LosesTheFirstAnswer(metering_harness.replicas), SystemClock(), log)  # type: ignore[arg-type]
    repeat = ChatHold(metering, metering_harness.journal, ANN, f"{2:032x}", "forte")
    with pytest.raises(LegatoError) as refused:
        await repeat.reserve(100, 10, CLAIM)
    assert refused.value.reason is Reason.REQUEST_REPEATED
    repeat.void(pb.END_REFUSED)
    first.void(pb.END_CLIENT_GONE)
    await metering.settled()
    await metering_harness.metering.settled()
    with pytest.raises(LegatoError) as late:
        await metering_harness.hold(2).reserve(100, 10, CLAIM)
    assert late.value.reason is Reason.REQUEST_RESOLVED
    assert (await metering_harness.hold(3).reserve(100, 10, CLAIM)).output_tokens == 10
