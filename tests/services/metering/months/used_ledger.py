"""A ledger that was used for some months, and what tests of its retention ask of it."""

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit, find_violations_of
from services.metering.audit.closed_months import audit_months
from services.metering.credit.batch import Writer
from services.metering.credit.store.balances import read_balances
from services.metering.months.passes import Retention
from services.metering.settings import MeteringSettings
from tests.services.metering.samples import (
    ACCOUNT,
    ask_each,
    grant,
    model_call,
    reserve,
    settle,
    void,
)
from tests.support.database_time import DatabaseTime

OTHER = "acct_bbbbbbbbbbbbbbbb"
KEEPS_ALL = MeteringSettings(retention_holds_days=0)
# Of `live_for_months`, the last month with chats is kept.
PRUNES = MeteringSettings(retention_holds_days=2, retention_ledger_months=2, retention_usage_months=1)


def retaining(database: Database, log: Log, policy: MeteringSettings = KEEPS_ALL) -> Retention:
    return Retention(database, policy, log, pause_s=0)


def count(database: Database, table: sa.Table) -> int:
    with database.transaction(writes=False) as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def balance(database: Database, account: str = ACCOUNT) -> int:
    with database.transaction(writes=False) as connection:
        return read_balances(connection, [account])[0].balance_nanos


async def chats(writer: Writer, first: int) -> None:
    """A grant, two chats that are charged, one that is not, and one of another account."""
    await ask_each(
        writer, grant(1_000, grant_id=f"g{first}"), grant(500, account=OTHER, grant_id=f"o{first}"),
        reserve(first), settle(first, prompt=1, completion=3, calls=[model_call()]),
        reserve(first + 1), settle(first + 1, completion=5),
        reserve(first + 2), void(first + 2), reserve(first + 3, account=OTHER),
        settle(first + 3, completion=1, account=OTHER),
    )  # fmt: skip


async def live_for_months(database: Database, writer: Writer, log: Log, database_time: DatabaseTime) -> None:
    """Three months with chats, one without, and the first days of the next."""
    for first in (1, 11, 21):
        await retaining(database, log).create_partitions()
        database_time.begin_month()
        await chats(writer, first)
    await retaining(database, log).create_partitions()
    database_time.begin_month()
    database_time.begin_month()


async def all_violations(database: Database) -> list[str]:
    with database.transaction(writes=False) as connection:
        of_accounts = [line for account in (ACCOUNT, OTHER) for line in find_violations_of(connection, account)]
    return await audit(database) + await audit_months(database, None) + of_accounts
