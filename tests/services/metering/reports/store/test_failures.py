import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.store.failures import Failures, add_failures, read_failures, sum_up_failures
from services.metering.reports.store.tables import failure_hours
from tests.services.metering.samples import ACCOUNT, KEY

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


def test_reports_add_up_by_hour_reason_and_account(database: Database) -> None:
    hour_us = hour_of(database)
    cut = failed(hour_us, 4, "UPSTREAM_FAILED")._replace(is_cut=True)
    add(
        database, failed(hour_us, 2), failed(hour_us), failed(hour_us - HOUR_US, 5), cut, failed(hour_us, account=OTHER)
    )
    add(database, failed(hour_us, 10))
    periods = [(hour_us - HOUR_US, hour_us), (hour_us, hour_us + HOUR_US)]
    with database.transaction(writes=False) as connection:
        before, now = read_failures(connection, ACCOUNT, periods)
        assert list(map(tuple, before)) == [(KEY, "forte", "RATE_LIMITED", False, 5)]
        assert sorted(map(tuple, now)) == [
            (KEY, "forte", "RATE_LIMITED", False, 13),
            (KEY, "forte", "UPSTREAM_FAILED", True, 4),
        ]
        assert read_failures(connection, ACCOUNT, periods, ["key_other"]) == [[], []]
        assert read_failures(connection, ACCOUNT, periods, [KEY]) == [before, now]


def test_a_clock_that_is_wrong_counts_now(database: Database) -> None:
    hour_us = hour_of(database)
    add(database, failed(hour_us - 3 * DAY_US), failed(hour_us + 2 * HOUR_US))
    with database.transaction(writes=False) as connection:
        found = dict(connection.execute(sa.select(failure_hours.c.hour_us, failure_hours.c.chats)).all())
    assert sum(found.values()) == 2
    # The test may have begun in the hour before.
    assert set(found) <= {hour_us, hour_us + HOUR_US}


def test_hours_of_a_month_become_one_row(database: Database) -> None:
    hour_us = hour_of(database)
    start_us = hour_us - 5 * HOUR_US
    add(database, *(failed(hour_us - back * HOUR_US, back + 1) for back in range(4)), failed(hour_us, account=OTHER))
    with database.transaction(writes=True) as connection:
        assert sum_up_failures(connection, [ACCOUNT], start_us, hour_us + HOUR_US) == 3
        assert sum_up_failures(connection, [ACCOUNT], start_us, hour_us + HOUR_US) == 0
        found = connection.execute(
            sa.select(failure_hours.c.account_id, failure_hours.c.hour_us, failure_hours.c.chats)
        )
        assert sorted(map(tuple, found)) == [(ACCOUNT, start_us, 10), (OTHER, hour_us, 1)]
