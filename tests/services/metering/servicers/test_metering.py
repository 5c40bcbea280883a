"""The calls of a chat as the edge makes them: to a real server on a socket, by ordinary RPCs and on the exchange."""

import asyncio
from typing import Any

import grpc.aio
import pytest
import sqlalchemy as sa

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import MeteringServiceStub
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.exchange.client import ExchangeClient
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.notices import NoticeRules
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.records import COMMAND_LINE, DAY_US
from services.metering.credit.store import batches, tables
from services.metering.credit.store.accounts import set_threshold
from services.rules.cost import least_hold_nanos
from tests.services.metering.samples import ACCOUNT, KEY, request_id
from tests.services.metering.servicers.messages import Ask, delivery, grant, refusal_of, reserve, settle


async def test_request_is_reserved_extended_and_settled(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    reserved = await ask("Reserve", reserve())
    price = pb.Price(
        version=1, input_nanos_per_million=2_000_000, cached_input_nanos_per_million=1_000_000,
        output_nanos_per_million=10_000_000,
    )  # fmt: skip
    assert reserved == pb.ReserveResponse(held_nanos=110, price=price, free_nanos=890)
    extend = pb.ExtendRequest(request_id=request_id(1), account_id=ACCOUNT, total_nanos=1_001)
    assert await ask("Extend", extend) == pb.ExtendResponse(
        extended=False, total_nanos=1_001, held_nanos=110, affordable_nanos=1_000, balance_nanos=1_000
    )
    assert await ask("Settle", settle()) == pb.SettleResponse(charged_nanos=40)
    balances = await admin.ListBalances(pb.ListBalancesRequest(account_ids=["acct_unknown", ACCOUNT]))
    assert [(balance.account_id, balance.balance_nanos) for balance in balances.balances] == [
        ("acct_unknown", 0), (ACCOUNT, 960),
    ]  # fmt: skip


async def test_the_outlook_tells_the_threshold_and_what_the_last_week_cost(
    channel: grpc.aio.Channel, database: Database, writer: Writer, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub: Any = MeteringServiceStub(channel)
    writer.notice_rules = NoticeRules(low_balance_nanos=70)
    await grant(admin, 1_000)
    with database.transaction(writes=False) as connection:
        now_us = read_now_us(connection)
    for days_ago in (8, 6, 0):
        at_us = now_us - days_ago * DAY_US
        monkeypatch.setattr(batches, "now_us_query", lambda connection, at_us=at_us: f"SELECT {at_us}")
        await stub.Reserve(reserve(days_ago + 1))
        await stub.Settle(settle(days_ago + 1))
    request = pb.GetBalanceRequest(account_id=ACCOUNT, tells_outlook=True)
    assert (await stub.GetBalance(request)).outlook == pb.Outlook(low_balance_nanos=70, spent_7_days_nanos=80)
    with database.transaction(writes=True) as connection:
        set_threshold(connection, ACCOUNT, 25)
    assert (await stub.GetBalance(request)).outlook.low_balance_nanos == 25
    request.tells_outlook = False
    assert not (await stub.GetBalance(request)).HasField("outlook")


async def test_the_limits_of_the_account_come_with_the_outlook(channel: grpc.aio.Channel, writer: Writer) -> None:
    stub: Any = MeteringServiceStub(channel)
    request = pb.GetBalanceRequest(account_id=ACCOUNT, tells_outlook=True)
    assert not (await stub.GetBalance(request)).spends
    for key_id in (WHOLE_ACCOUNT, KEY):
        await writer.submit(SetSpendLimits(ACCOUNT, key_id, SpendLimits(day_nanos=500), COMMAND_LINE), str)
    [told] = (await stub.GetBalance(request)).spends
    assert (told.key_id, told.limits.day_nanos) == (WHOLE_ACCOUNT, 500)
    assert not (await stub.GetBalance(pb.GetBalanceRequest(account_id=ACCOUNT))).spends


async def test_void_leaves_a_mark_that_a_late_reserve_finds(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    void = pb.VoidRequest(request_id=request_id(1), account_id=ACCOUNT, end=pb.END_REFUSED)
    assert await ask("Void", void) == pb.VoidResponse()
    assert (await refusal_of(ask("Reserve", reserve()))).reason is Reason.REQUEST_RESOLVED


def left(number: int, accepted_tokens: int) -> pb.VoidRequest:
    return pb.VoidRequest(
        request_id=request_id(number),
        account_id=ACCOUNT,
        end=pb.END_CLIENT_GONE,
        unpaid_prompt_tokens=10,
        accepted_prompt_tokens=accepted_tokens,
    )


async def test_prompts_that_are_left_by_habit_are_charged_if_a_provider_had_them(ask: Ask, admin: Any) -> None:
    await grant(admin, 10_000)

    async def leave(number: int, accepted_tokens: int) -> tuple[bool, int]:
        """Tells if it was a habit before, and its cost."""
        [before] = (await admin.ListBalances(pb.ListBalancesRequest(account_ids=[ACCOUNT]))).balances
        reserved = await ask("Reserve", reserve(number))
        for _ in range(2):
            await ask("Void", left(number, accepted_tokens))
        [after] = (await admin.ListBalances(pb.ListBalancesRequest(account_ids=[ACCOUNT]))).balances
        assert after.held_nanos == 0
        return reserved.has_habit_of_leaving, before.balance_nanos - after.balance_nanos

    assert [await leave(number, 7) for number in (1, 2)] == [(False, 0), (False, 0)]
    assert await leave(3, 7) == (True, 14)
    # It had not been read.
    assert await leave(4, 0) == (True, 0)
    refused = pb.VoidRequest(request_id=request_id(5), account_id=ACCOUNT, end=pb.END_REFUSED)
    await ask("Reserve", reserve(5))
    await ask("Void", refused)
    assert await leave(6, 7) == (True, 14)


async def test_prompts_that_are_left_at_once_are_not_all_for_nothing(ask: Ask, admin: Any) -> None:
    """However many were under way before the first of them was left."""
    await grant(admin, 10_000)
    for number in range(1, 6):
        await ask("Reserve", reserve(number, concurrent_requests=10))
    await asyncio.gather(*(ask("Void", left(number, 7)) for number in range(1, 6)))
    [balance] = (await admin.ListBalances(pb.ListBalancesRequest(account_ids=[ACCOUNT]))).balances
    assert (balance.balance_nanos, balance.held_nanos) == (10_000 - 3 * 14, 0)


async def test_many_checkpoints_come_at_once_and_are_written_when_answered(
    ask: Ask, admin: Any, database: Database
) -> None:
    await grant(admin, 1_000)
    for number in (1, 2):
        await ask("Reserve", reserve(number))
    deliveries = [delivery(1, 3), delivery(9, 1), delivery(2, 8, account_id="acct_other"), delivery(2, 4)]
    assert await ask("Checkpoint", pb.CheckpointRequest(deliveries=deliveries)) == pb.CheckpointResponse()
    with database.transaction(writes=False) as connection:
        found = connection.exec_driver_sql("SELECT completion_tokens, basis FROM holds ORDER BY request_id").all()
    assert list(map(tuple, found)) == [(3, "checkpoint"), (4, "checkpoint")]


async def test_checkpoint_that_could_not_be_written_is_not_said_to_be(ask: Ask, admin: Any, database: Database) -> None:
    await grant(admin, 1_000)
    await ask("Reserve", reserve())
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("ALTER TABLE holds RENAME TO elsewhere")
    refusal = await refusal_of(ask("Checkpoint", pb.CheckpointRequest(deliveries=[delivery(1, 3)])))
    assert refusal.reason in (Reason.UNAVAILABLE, Reason.INTERNAL)


async def test_repeat_under_an_idempotency_key_is_told_which_request_was_first(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    claim = pb.IdempotencyClaim(key_digest=b"k" * 32, body_digest=b"b" * 32)
    await ask("Reserve", reserve(claim=claim))
    repeated = await refusal_of(ask("Reserve", reserve(2, claim=claim)))
    assert (repeated.reason, repeated.original_request_id) == (Reason.REQUEST_REPEATED, request_id(1))
    claim.body_digest = b"c" * 32
    reused = await refusal_of(ask("Reserve", reserve(2, claim=claim)))
    assert (reused.reason, reused.original_request_id) == (Reason.IDEMPOTENCY_KEY_REUSED, None)


async def test_refusals_travel_with_their_reason_and_delay(ask: Ask, admin: Any) -> None:
    assert (await refusal_of(ask("Reserve", reserve()))).reason is Reason.CREDITS_EXHAUSTED
    await grant(admin, 110)
    await ask("Reserve", reserve())
    refusal = await refusal_of(ask("Reserve", reserve(2)))
    assert (refusal.reason, refusal.retry_after_s) == (Reason.CREDITS_HELD, 1)


async def test_key_that_runs_as_many_as_it_may_is_told_to_wait(ask: Ask, admin: Any) -> None:
    await grant(admin, 10_000)
    await ask("Reserve", reserve(concurrent_requests=1))
    refusal = await refusal_of(ask("Reserve", reserve(2, concurrent_requests=1)))
    assert (refusal.reason, refusal.retry_after_s) == (Reason.TOO_MANY_AT_ONCE, 1)
    # The service's own default is higher.
    await ask("Reserve", reserve(2))
    assert (await refusal_of(ask("Reserve", reserve(3)))).reason is Reason.TOO_MANY_AT_ONCE


async def test_key_is_admitted_at_its_rate(ask: Ask) -> None:
    admit = pb.AdmitRequest(key_id=KEY, account_id=ACCOUNT)
    assert await ask("Admit", admit) == pb.AdmitResponse(
        limit_requests=3_000, remaining_requests=1, reset_requests_ms=20
    )
    await ask("Admit", admit)
    refusal = await refusal_of(ask("Admit", admit))
    assert (refusal.reason, refusal.retry_after_s) == (Reason.RATE_LIMITED, 0.02)
    assert refusal.figures == {
        "limit_requests": 3_000, "remaining_requests": 0, "reset_requests_ms": 40,
        "limit_tokens": 0, "remaining_tokens": 0, "reset_tokens_ms": 0,
    }  # fmt: skip


async def test_key_s_own_rates_go_before_the_default(ask: Ask) -> None:
    admit = pb.AdmitRequest(key_id=KEY, account_id=ACCOUNT, requests_per_minute=60, tokens_per_minute=100, tokens=40)
    assert await ask("Admit", admit) == pb.AdmitResponse(
        limit_requests=60, remaining_requests=3, reset_requests_ms=1_000,
        limit_tokens=100, remaining_tokens=60, reset_tokens_ms=24_000,
    )  # fmt: skip


async def test_limits_larger_than_any_are_taken_for_the_largest(ask: Ask, admin: Any) -> None:
    """They may have been set when that could be: it is no fault of the present caller."""
    admitted = await ask("Admit", pb.AdmitRequest(key_id=KEY, requests_per_minute=10**9, tokens_per_minute=10**12))
    assert (admitted.limit_requests, admitted.limit_tokens) == (1_000_000, 1_000_000_000)
    await grant(admin, 1_000)
    assert (await ask("Reserve", reserve(concurrent_requests=10**12))).held_nanos


async def test_correction_gives_back_what_a_refused_request_took(ask: Ask) -> None:
    limits: dict[str, Any] = {"key_id": KEY, "account_id": ACCOUNT, "requests_per_minute": 15, "tokens_per_minute": 100}
    for _ in range(3):
        await ask("Admit", pb.AdmitRequest(**limits, tokens=90))
        assert await ask("Correct", pb.CorrectRequest(**limits, refused=True, tokens=-90)) == pb.CorrectResponse()
    await ask("Admit", pb.AdmitRequest(**limits, tokens=90))
    await ask("Correct", pb.CorrectRequest(**limits, tokens=70))
    refusal = await refusal_of(ask("Admit", pb.AdmitRequest(**limits, tokens=1)))
    assert "tokens" in refusal.message
    assert refusal.retry_after_s == 36.6


NONSENSE: list[tuple[str, Any]] = [
    ("Reserve", reserve(request_id="F" * 32)),
    ("Reserve", reserve(request_id="")),
    ("Reserve", reserve(account_id="acct_' OR 1=1")),
    ("Reserve", reserve(key_id="")),
    ("Reserve", reserve(class_id="piano")),
    ("Reserve", reserve(prompt_tokens=-1)),
    ("Reserve", reserve(output_tokens=10**9 + 1)),
    ("Reserve", reserve(claim=pb.IdempotencyClaim(key_digest=b"x" * 32))),
    ("Reserve", reserve(claim=pb.IdempotencyClaim(key_digest=b"x" * 33, body_digest=b"x" * 32))),
    ("Reserve", reserve(claim=pb.IdempotencyClaim())),
    ("Reserve", reserve(concurrent_requests=0)),
    ("Settle", settle(usage=Usage(prompt_tokens=-1))),
    ("Settle", settle(usage=Usage(completion_tokens=10**9 + 1))),
    ("Settle", settle(basis=pb.BASIS_UNSPECIFIED)),
    ("Settle", settle(end=pb.END_UNSPECIFIED)),
    ("Extend", pb.ExtendRequest(request_id=request_id(1), account_id=ACCOUNT, total_nanos=-1)),
    ("Void", pb.VoidRequest(request_id=request_id(1), account_id=ACCOUNT)),
    ("Checkpoint", pb.CheckpointRequest(deliveries=[delivery(1, 3), delivery(1, -1)])),
    ("Checkpoint", pb.CheckpointRequest(deliveries=[delivery(1, 3, account_id="")])),
    ("Checkpoint", pb.CheckpointRequest(deliveries=[pb.Delivery(request_id="1", account_id=ACCOUNT)])),
    ("Checkpoint", pb.CheckpointRequest(deliveries=[delivery(1, 3)] * 10_001)),
    ("Admit", pb.AdmitRequest(key_id="")),
    ("Admit", pb.AdmitRequest(key_id=KEY, requests_per_minute=0)),
    ("Admit", pb.AdmitRequest(key_id=KEY, tokens_per_minute=0)),
    ("Admit", pb.AdmitRequest(key_id=KEY, tokens=-1)),
    ("Correct", pb.CorrectRequest(key_id="")),
    ("Correct", pb.CorrectRequest(key_id=KEY, tokens=-(10**9) - 1)),
    ("Correct", pb.CorrectRequest(key_id=KEY, requests_per_minute=0)),
]


async def test_what_makes_no_sense_is_refused(ask: Ask) -> None:
    for method, message in NONSENSE:
        refusal = await refusal_of(ask(method, message))
        assert refusal.reason is Reason.REQUEST_INVALID, (method, str(message)[:500])
        assert "OR 1=1" not in refusal.message


async def test_more_cached_tokens_than_prompt_are_taken_as_all_of_it(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    await ask("Reserve", reserve())
    usage = Usage(prompt_tokens=5, cached_tokens=9)
    assert (await ask("Settle", settle(usage=usage))).charged_nanos == 5


@pytest.mark.parametrize("method", ["GrantCredits", "AdjustCredits", "Audit", "ListUsage", "GetBalance", ""])
async def test_nothing_but_the_calls_of_a_chat_travels_on_the_exchange(
    channel: grpc.aio.Channel, log: Log, method: str
) -> None:
    stub: Any = MeteringServiceStub(channel)
    exchange = ExchangeClient("Metering", stub.Exchange, pb.ExchangeRequest, log)
    exchange.start()
    await exchange.connected()
    request = pb.GrantCreditsRequest(operation_id="g", account_id=ACCOUNT, amount_nanos=5)
    refusal = await refusal_of(exchange.call(method, request, pb.GrantCreditsResponse, 10))
    await exchange.close()
    assert refusal.reason is Reason.REQUEST_INVALID


def admitted(number: int = 1) -> pb.ReserveRequest:
    """Takes the only request that the key's limit allows for now."""
    admission = pb.AdmitRequest(
        key_id=KEY, account_id=ACCOUNT, requests_per_minute=15, tokens_per_minute=100, tokens=40
    )
    return reserve(number, admission=admission)


async def test_hold_asks_for_its_admission_too(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    rate = (await ask("Reserve", admitted())).rate
    assert (rate.limit_requests, rate.remaining_requests, rate.remaining_tokens) == (15, 0, 60)


async def test_request_that_the_rate_limits_refuse_holds_nothing(ask: Ask, admin: Any) -> None:
    await grant(admin, 1_000)
    await ask("Reserve", admitted(1))
    assert (await refusal_of(ask("Reserve", admitted(2)))).reason is Reason.RATE_LIMITED
    assert (await ask("Reserve", reserve(3))).free_nanos == 1_000 - 2 * 110


async def test_admitted_request_whose_hold_is_refused_is_told_what_is_left_of_its_limits(ask: Ask) -> None:
    refusal = await refusal_of(ask("Reserve", admitted()))
    assert refusal.reason is Reason.CREDITS_EXHAUSTED
    assert (refusal.figures["remaining_requests"], refusal.figures["remaining_tokens"]) == (0, 60)


async def test_keys_without_room_come_with_the_outlook(
    channel: grpc.aio.Channel, writer: Writer, database: Database
) -> None:
    stub: Any = MeteringServiceStub(channel)
    request = pb.GetBalanceRequest(account_id=ACCOUNT, tells_outlook=True)
    least_nanos = least_hold_nanos((await stub.GetBalance(request)).least_input_nanos_per_million)
    enough_nanos = 501 + least_nanos
    limits = {
        "key_0": SpendLimits(day_nanos=500 + least_nanos),
        "key_1": SpendLimits(total_nanos=500),
        "key_2": SpendLimits(month_nanos=0),
        "key_3": SpendLimits(day_nanos=500),
        "key_4": SpendLimits(month_nanos=500),
        "key_5": SpendLimits(day_nanos=enough_nanos, month_nanos=enough_nanos, total_nanos=enough_nanos),
    }
    for key_id, each in limits.items():
        await writer.submit(SetSpendLimits(ACCOUNT, key_id, each, COMMAND_LINE), str)
    await writer.submit(InheritSpendLimits(ACCOUNT, "key_9", SpendLimits(), replaced_key_id="key_1"), str)
    spent = {"day_spent_nanos": 500, "month_spent_nanos": 500, "total_spent_nanos": 500}
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(tables.spends).values(spent))
        # Of days and months that are over.
        connection.execute(sa.update(tables.spends).where(tables.spends.c.key_id == "key_3").values(day_us=0))
        connection.execute(
            sa.update(tables.spends).where(tables.spends.c.key_id == "key_4").values(day_us=0, month_us=0)
        )
    told = (await stub.GetBalance(request)).spends
    assert [spend.key_id for spend in told] == ["key_0", "key_1", "key_2", "key_9"]
    assert [told[3].limits.total_nanos, told[3].total_spent_nanos] == [500, 500]
