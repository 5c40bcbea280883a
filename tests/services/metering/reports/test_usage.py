from typing import Any

import pytest

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US, Reserve, Settle
from services.metering.credit.store.tables import usage_hours
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.reports.usage import UsageRow
from services.rules.usage import Usage
from tests.services.metering.reading import list_usage
from tests.services.metering.samples import ACCOUNT, ask, grant, request_id

pytestmark = pytest.mark.sqlite_suffices

DAY = 20_000 * DAY_US


def query(**changes: Any) -> UsageReportQuery:
    given: dict[str, Any] = {
        "account_id": ACCOUNT,
        "start_us": DAY,
        "end_us": DAY + 2 * DAY_US,
        "bucket_us": HOUR_US,
        "group_by_key": False,
        "group_by_class": False,
    }
    return UsageReportQuery(**(given | changes))


@pytest.fixture
def counted(database: Database) -> None:
    """Three hours of two days, two keys, two classes; every row is one request of 10 + 5 tokens."""
    rows = [
        (0, "key_a", "forte"), (0, "key_a", "mezzo"), (0, "key_b", "forte"),
        (1, "key_a", "forte"),
        (25, "key_b", "mezzo"),
    ]  # fmt: skip
    with database.transaction(writes=True) as connection:
        for hour, key_id, class_id in rows:
            connection.execute(
                usage_hours.insert().values(
                    account_id=ACCOUNT, hour_us=DAY + hour * HOUR_US, key_id=key_id, class_id=class_id, requests=1,
                    prompt_tokens=10, cached_tokens=2, completion_tokens=5, cost_nanos=100, loss_nanos=1,
                )
            )  # fmt: skip


def row(hour: int, key_id: str, class_id: str, requests: int) -> UsageRow:
    usage = Usage(10 * requests, 2 * requests, 5 * requests)
    return UsageRow(DAY + hour * HOUR_US, key_id, class_id, requests, usage, 100 * requests)


@pytest.mark.usefixtures("counted")
async def test_hours_are_added_up_oldest_first(database: Database) -> None:
    assert await list_usage(database, query()) == [
        row(0, "", "", 3),
        row(1, "", "", 1),
        row(25, "", "", 1),
    ]


@pytest.mark.usefixtures("counted")
async def test_days_are_added_up(database: Database) -> None:
    assert await list_usage(database, query(bucket_us=DAY_US)) == [row(0, "", "", 4), row(24, "", "", 1)]


@pytest.mark.usefixtures("counted")
async def test_rows_are_grouped_by_key_and_class(database: Database) -> None:
    by_both = await list_usage(database, query(bucket_us=DAY_US, group_by_key=True, group_by_class=True))
    assert by_both == [
        row(0, "key_a", "forte", 2), row(0, "key_a", "mezzo", 1), row(0, "key_b", "forte", 1),
        row(24, "key_b", "mezzo", 1),
    ]  # fmt: skip
    by_class = await list_usage(database, query(bucket_us=DAY_US, group_by_class=True))
    assert by_class == [row(0, "", "forte", 3), row(0, "", "mezzo", 1), row(24, "", "mezzo", 1)]


@pytest.mark.usefixtures("counted")
async def test_end_is_not_part_and_other_accounts_are_not_seen(database: Database) -> None:
    assert await list_usage(database, query(end_us=DAY + HOUR_US)) == [row(0, "", "", 3)]
    assert await list_usage(database, query(start_us=DAY + HOUR_US, end_us=DAY + 25 * HOUR_US)) == [row(1, "", "", 1)]
    assert await list_usage(database, query(account_id="acct_other")) == []


@pytest.mark.parametrize(
    "changes", [{"start_us": DAY + 1}, {"end_us": DAY + 1}, {"end_us": DAY - HOUR_US}], ids=["start", "end", "order"]
)
async def test_time_that_is_no_range_of_hours_is_refused(database: Database, changes: dict[str, int]) -> None:
    with pytest.raises(LegatoError) as refusal:
        await list_usage(database, query(**changes))
    assert refusal.value.reason is Reason.REQUEST_INVALID


async def test_settlements_are_counted_where_they_belong(database: Database, writer: Writer) -> None:
    before_us = await database.read(read_now_us)
    await ask(writer, grant(10_000))
    for number, (key_id, class_id) in enumerate([("key_a", "forte"), ("key_a", "forte"), ("key_b", "mezzo")]):
        await ask(writer, Reserve(request_id(number), ACCOUNT, key_id, class_id, 10, 10))
        settlement = Settle(request_id(number), ACCOUNT, Usage(10, 4, 3), "provider", "complete")
        for _ in range(2):
            await ask(writer, settlement)
    start_us = before_us - before_us % HOUR_US
    rows = await list_usage(
        database,
        query(start_us=start_us, end_us=start_us + 2 * HOUR_US, group_by_key=True, group_by_class=True),
    )
    assert [(row.key_id, row.class_id, row.requests, row.usage, row.cost_nanos) for row in rows] == [
        ("key_a", "forte", 2, Usage(20, 8, 6), 2 * (12 + 4 + 30)),
        ("key_b", "mezzo", 1, Usage(10, 4, 3), 2),
    ]
