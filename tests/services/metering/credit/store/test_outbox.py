"""Notices of a low balance and of spend limits, on real databases."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.metering.v1 import notices_pb2 as pb
from legato_protos.metering.v1 import outbox_pb2
from legato_protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceStub
from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.notices import AccountNotice, NoticeRules
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, SetSpendLimits, SpendLimits
from services.metering.credit.prices import Prices
from services.metering.credit.servicers.notices import NoticeThresholdServicer
from services.metering.credit.servicers.outbox import OutboxServicer
from services.metering.credit.store.accounts import set_threshold
from services.metering.credit.store.outbox import KEPT_US, acknowledge_notices, list_pending_notices
from services.metering.credit.store.tables import accounts, notices
from tests.services.metering.samples import ACCOUNT, KEY, LIFE_S, adjust, ask, grant, reserve, settle

RULES = NoticeRules(low_balance_nanos=500, near_percent=80)


@pytest.fixture
async def writer(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    writer = Writer(database, prices, LIFE_S, log, notice_rules=RULES)
    yield writer
    await writer.close()


async def spend(writer: Writer, number: int, nanos: int) -> None:
    await ask(writer, reserve(number, output=nanos // 10))
    await ask(writer, settle(number, completion=nanos // 10))


async def pending(database: Database) -> list[AccountNotice]:
    return await database.read(list_pending_notices, most=100)


async def test_a_balance_that_falls_below_the_threshold_gives_one_notice_each_time(
    database: Database, writer: Writer
) -> None:
    await ask(writer, grant(1_000))
    await spend(writer, 1, 500)
    assert await pending(database) == []
    await spend(writer, 2, 10)
    [notice] = await pending(database)
    found = (notice.kind, notice.account_id, notice.key_id, notice.amount_nanos, notice.threshold_nanos)
    assert found == ("balance.low", ACCOUNT, "", 490, 500)
    await spend(writer, 3, 100)
    assert await pending(database) == [notice]
    await ask(writer, grant(200, grant_id="grant-2"))
    await ask(writer, adjust(-200))
    assert [each.amount_nanos for each in await pending(database)] == [490, 390]
    assert await audit(database) == []


async def test_a_hold_is_no_charge_and_gives_no_notice(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, reserve(1, output=90))
    assert await pending(database) == []


@pytest.mark.parametrize(("own_nanos", "told"), [(100, []), (900, [890]), (0, []), (None, [490])])
async def test_the_threshold_of_an_account_replaces_that_of_the_service(
    database: Database, writer: Writer, own_nanos: int | None, told: list[int]
) -> None:
    # Before the account has any credit, too.
    await database.write(set_threshold, account_id=ACCOUNT, low_balance_nanos=own_nanos)
    await ask(writer, grant(1_000))
    for number in range(1, 52):
        await spend(writer, number, 10)
    found = [notice.amount_nanos for notice in await pending(database)]
    assert found == told
    with database.transaction(writes=False) as connection:
        assert connection.execute(sa.select(accounts.c.low_balance_nanos)).scalar_one() == own_nanos


@pytest.mark.parametrize("key", [KEY, WHOLE_ACCOUNT])
async def test_a_spend_limit_gives_a_notice_when_it_is_near_and_one_when_it_refuses(
    database: Database, writer: Writer, key: str
) -> None:
    await ask(writer, grant(100_000))
    await ask(writer, SetSpendLimits(ACCOUNT, key, SpendLimits(day_nanos=100, total_nanos=100_000)))
    await spend(writer, 1, 70)
    assert await pending(database) == []
    await spend(writer, 2, 20)
    [near] = await pending(database)
    assert (near.kind, near.key_id, near.period) == ("spend_limit.near", key, "day")
    assert (near.amount_nanos, near.threshold_nanos) == (90, 100)
    for number in (3, 4, 5):
        with pytest.raises(LegatoError) as refused:
            await ask(writer, reserve(number, prompt=20, output=10))
        assert refused.value.reason is Reason.SPEND_LIMIT_EXCEEDED
    _, reached = await pending(database)
    assert (reached.kind, reached.key_id, reached.period) == ("spend_limit.reached", key, "day")
    # A higher limit can be reached again.
    await ask(writer, SetSpendLimits(ACCOUNT, key, SpendLimits(day_nanos=110)))
    with pytest.raises(LegatoError):
        await ask(writer, reserve(6, prompt=20, output=10))
    assert [notice.threshold_nanos for notice in await pending(database)] == [100, 100, 110]


async def test_a_limit_whose_rest_is_only_held_gives_no_notice(database: Database, writer: Writer) -> None:
    await ask(writer, grant(100_000))
    await ask(writer, SetSpendLimits(ACCOUNT, KEY, SpendLimits(day_nanos=100)))
    await ask(writer, reserve(1, output=10))
    with pytest.raises(LegatoError) as refused:
        await ask(writer, reserve(2, output=10))
    assert refused.value.reason is Reason.SPEND_LIMIT_EXCEEDED
    assert await pending(database) == []


async def test_a_batch_that_is_not_committed_leaves_no_notice(
    database: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, reserve(1, output=60))

    def fail(step: str, operations: Any) -> None:
        if step == "written":
            raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("services.metering.credit.store.batches.reach", fail)
        with pytest.raises(LegatoError):
            await ask(writer, settle(1, completion=60))
    assert await pending(database) == []
    await ask(writer, settle(1, completion=60))
    assert len(await pending(database)) == 1


async def test_acknowledged_notices_are_kept_for_a_while_so_that_none_comes_twice(
    database: Database, writer: Writer
) -> None:
    await ask(writer, grant(100_000))
    await ask(writer, SetSpendLimits(ACCOUNT, KEY, SpendLimits(month_nanos=100)))
    await spend(writer, 1, 75)
    for number in (2, 3):
        with pytest.raises(LegatoError):
            await ask(writer, reserve(number, prompt=20, output=10))
        await database.write(acknowledge_notices, notice_ids=[each.notice_id for each in await pending(database)])
    with database.transaction(writes=True) as connection:
        assert len(connection.execute(sa.select(notices)).all()) == 1
        connection.execute(notices.update().values(acknowledged_at_us=notices.c.acknowledged_at_us - KEPT_US - 1))
    await database.write(acknowledge_notices, notice_ids=["ntc_unknown"])
    with database.transaction(writes=False) as connection:
        assert connection.execute(sa.select(notices)).all() == []


async def test_notices_and_thresholds_by_rpc(database: Database, writer: Writer, socket_folder: Path, log: Log) -> None:
    await ask(writer, grant(1_000))
    await spend(writer, 1, 600)
    listen = f"unix:{socket_folder}/notices.sock"
    servicers = [
        OutboxServicer(database),
        NoticeThresholdServicer(database, RULES),
    ]
    server = RpcServer(listen, servicers, log)
    await server.start()
    async with open_channel(listen) as channel:
        await channel.channel_ready()
        outbox: Any = OutboxServiceStub(channel)
        thresholds: Any = NoticeThresholdServiceStub(channel)
        [notice] = (await outbox.ListPending(outbox_pb2.ListPendingRequest())).notices
        assert (notice.kind, notice.amount_nanos, notice.threshold_nanos) == ("balance.low", 400, 500)
        assert notice.record_time.seconds
        for _ in range(2):
            await outbox.Acknowledge(outbox_pb2.AcknowledgeRequest(notice_ids=[notice.notice_id]))
        assert not (await outbox.ListPending(outbox_pb2.ListPendingRequest())).notices
        found = await thresholds.GetLowBalance(pb.GetLowBalanceRequest(account_id=ACCOUNT))
        assert found.low_balance == pb.LowBalance(threshold_nanos=500, is_default=True)
        await thresholds.SetLowBalance(pb.SetLowBalanceRequest(account_id=ACCOUNT, threshold_nanos=7))
        found = await thresholds.GetLowBalance(pb.GetLowBalanceRequest(account_id=ACCOUNT))
        assert found.low_balance == pb.LowBalance(threshold_nanos=7)
        for wrong in (-1, 10**18):
            with pytest.raises(LegatoError) as refused, errors_of("Metering"):
                await thresholds.SetLowBalance(pb.SetLowBalanceRequest(account_id=ACCOUNT, threshold_nanos=wrong))
            assert refused.value.reason is Reason.REQUEST_INVALID
    await server.stop(1)
