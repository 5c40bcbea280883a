import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.store.failures import Failures, add_failures
from services.metering.reports.store.tables import usage_days
from tests.services.metering.reports.store.test_days import counted
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import ACCOUNT, KEY, ask_each, grant, reserve, settle

OTHER = "acct_bbbbbbbbbbbbbbbb"


def hour_of(database: Database) -> int:
    with database.transaction(writes=False) as connection:
        now_us = read_now_us(connection)
    return now_us - now_us % HOUR_US


def failed(hour_us: int, chats: int = 1, reason: str = "RATE_LIMITED", *, account: str = ACCOUNT) -> Failures:
    return Failures(account, hour_us, KEY, "forte", reason, False, chats)


def add(database: Database, *failures: Failures) -> None:
    with database.transaction(writes=True) as connection:
        add_failures(connection, failures)


async def test_reports_add_up_by_hour_reason_and_account(database: Database, writer: Writer) -> None:
    hour_us = hour_of(database)
    cut = failed(hour_us, 4, "UPSTREAM_FAILED")._replace(is_cut=True)
    add(
        database, failed(hour_us, 2), failed(hour_us), failed(hour_us - HOUR_US, 5), cut, failed(hour_us, account=OTHER)
    )
    # What is charged meanwhile leaves them as they are.
    await ask_each(writer, grant(1_000), reserve(1), settle(1))
    sum_up(database)
    add(database, failed(hour_us, 10))
    before, now = (hour_us - HOUR_US, hour_us), (hour_us, hour_us + HOUR_US)
    for key_ids in ((), (KEY,)):
        assert counted(database, *key_ids, period=before).failures == {"RATE_LIMITED": (5, 0)}
        assert counted(database, *key_ids, period=now).failures == {"RATE_LIMITED": (13, 0), "UPSTREAM_FAILED": (4, 4)}
    assert counted(database, account=OTHER).failed == 1
    assert counted(database, "key_other").failed == 0


def test_a_clock_that_is_wrong_counts_now(database: Database) -> None:
    hour_us = hour_of(database)
    add(database, failed(hour_us - 3 * DAY_US), failed(hour_us + 2 * HOUR_US))
    with database.transaction(writes=False) as connection:
        is_hour = (usage_days.c.span == "hour", usage_days.c.of_key == sa.false())
        found = set(connection.scalars(sa.select(usage_days.c.start_us).where(*is_hour)))
    assert counted(database).failed == 2
    # The test may have begun in the hour before.
    assert found <= {hour_us, hour_us + HOUR_US}
