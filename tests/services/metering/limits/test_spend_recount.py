"""Counters of spend limits beside metering of 0.1.0, which does not know them."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.records import ReturnPayment
from services.metering.credit.store.tables import accounts, holds, spends
from services.metering.limits.spend_recount import Recounted, recount_spends
from tests.services.metering.samples import ACCOUNT, KEY, ask, ask_each, grant, request_id, reserve, settle

NEW_KEY = "key_bbbbbbbbbbbb"


async def limit_everything(writer: Writer) -> None:
    await ask(writer, grant(1_000_000))
    await ask(writer, SetSpendLimits(ACCOUNT, WHOLE_ACCOUNT, SpendLimits(month_nanos=100_000)))
    await ask(writer, SetSpendLimits(ACCOUNT, KEY, SpendLimits(day_nanos=50_000)))


def forget_counters(database: Database) -> None:
    """Leaves the rows as if metering of 0.1.0 had written all holds and charges."""
    with database.transaction(writes=True) as connection:
        names = ("day_spent_nanos", "month_spent_nanos", "total_spent_nanos", "held_nanos")
        connection.execute(sa.update(spends).values(dict.fromkeys(names, 0)))


def read_counters(database: Database) -> dict[str, tuple[int, int]]:
    with database.transaction(writes=False) as connection:
        rows = connection.execute(sa.select(spends.c.key_id, spends.c.total_spent_nanos, spends.c.held_nanos))
        return {key_id: (spent_nanos, held_nanos) for key_id, spent_nanos, held_nanos in rows}


async def test_a_settlement_does_not_fail_for_a_counter_and_corrects_it(database: Database, writer: Writer) -> None:
    await limit_everything(writer)
    await ask_each(writer, reserve(1), settle(1, completion=3), reserve(2), reserve(3, output=5))
    forget_counters(database)
    assert (await ask(writer, settle(2, completion=2))).charged_nanos == 20
    # 50 of them are still held by the third.
    assert read_counters(database) == {WHOLE_ACCOUNT: (50, 50), KEY: (50, 50)}
    assert await audit(database) == []


async def test_limits_that_are_set_with_such_a_settlement_are_kept(database: Database, writer: Writer) -> None:
    await limit_everything(writer)
    await ask(writer, reserve(1))
    forget_counters(database)
    settled = ask(writer, settle(1, completion=2))
    lowered = ask(writer, SetSpendLimits(ACCOUNT, WHOLE_ACCOUNT, SpendLimits(month_nanos=70_000)))
    assert (await settled).charged_nanos == 20
    assert (await lowered).month_limit_nanos == 70_000
    with database.transaction(writes=False) as connection:
        limits = set(connection.scalars(sa.select(spends.c.month_limit_nanos).where(spends.c.key_id == WHOLE_ACCOUNT)))
    assert limits == {70_000}
    assert await audit(database) == []


async def test_counters_are_recounted_from_usage_and_holds(
    database: Database, writer: Writer, log: Log, log_text: Callable[[], str]
) -> None:
    await limit_everything(writer)
    await ask(writer, InheritSpendLimits(ACCOUNT, NEW_KEY, SpendLimits(), replaced_key_id=KEY))
    await ask_each(writer, reserve(1), settle(1, completion=3), reserve(2, key=NEW_KEY), settle(2, completion=1))
    await ask_each(writer, reserve(3, output=5), reserve(4, output=7, key="key_cccccccccccc"))
    right = read_counters(database)
    assert right == {WHOLE_ACCOUNT: (40, 120), KEY: (40, 50), NEW_KEY: (0, 0)}
    assert await recount_spends(database, log) == Recounted(1, 0)
    forget_counters(database)
    assert len(await audit(database)) == 2
    assert await recount_spends(database, log) == Recounted(1, 1)
    assert read_counters(database) == right
    assert await audit(database) == []
    assert '"event":"spends.recounted"' in log_text()


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
async def test_metering_of_0_1_0_writes_holds_of_accounts_without_limits_and_debts_only(
    database: Database, writer: Writer
) -> None:
    await limit_everything(writer)
    other, owing = "acct_bbbbbbbbbbbbbbbb", "acct_cccccccccccccccc"
    for account in (other, owing):
        await ask(writer, grant(1_000, account=account, grant_id=f"grant-{account}"))
    await ask_each(writer, reserve(1), reserve(2, account=other), reserve(3, account=owing))
    await ask(writer, ReturnPayment("return-1", owing, 950, "refund"))

    def settle_like_0_1_0(number: int, account_id: str) -> None:
        # In a transaction that was not begun by `Database`.
        with database.engine.begin() as connection:
            lock: Any = sa.select(accounts.c.account_id).where(accounts.c.account_id == account_id).with_for_update()
            connection.execute(lock)
            its_hold = holds.c.request_id == request_id(number)
            connection.execute(sa.update(holds).where(its_hold).values(basis="provider"))

    settle_like_0_1_0(2, other)
    for number, account in ((1, ACCOUNT), (3, owing)):
        with pytest.raises(sa.exc.DBAPIError, match=f"spend limits or owed credit of account {account}: replace it"):
            settle_like_0_1_0(number, account)
    assert (await ask(writer, settle(1, completion=2))).charged_nanos == 20
    # A connection of the pool that has written before is told as well.
    with pytest.raises(sa.exc.DBAPIError, match="older than the spend limits"):
        settle_like_0_1_0(1, ACCOUNT)
    assert await audit(database) == []
