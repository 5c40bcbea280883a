"""Changes of an account's balance, from ledgers of several days."""

import random
from collections.abc import AsyncIterator
from itertools import accumulate, groupby
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.credit.records import DAY_US, HOUR_US, Operation
from services.metering.credit.store import batches
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.tables import ledger
from services.metering.statements.credit_history import BEGINNING, CreditEntry, CreditPosition
from services.metering.statements.store.ledger_days import read_bookings, sum_bookings
from tests.services.metering.reading import list_credits
from tests.services.metering.samples import ACCOUNT, adjust, ask, ask_all, grant, reserve, settle, sweep

pytestmark = pytest.mark.sqlite_suffices

FIRST_DAY_US = 20_000 * DAY_US


class Calendar:
    def __init__(self) -> None:
        self.now_us = FIRST_DAY_US

    def on(self, day: int, hour: int = 0) -> None:
        self.now_us = FIRST_DAY_US + day * DAY_US + hour * HOUR_US


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> Calendar:
    calendar = Calendar()
    monkeypatch.setattr(batches, "now_us_query", lambda connection: f"SELECT {calendar.now_us}")
    return calendar


@pytest.fixture
async def hasty(database: Database, prices: Prices, log: Log, calendar: Calendar) -> AsyncIterator[Writer]:
    """Its holds are overdue at once."""
    writer = Writer(database, prices, -1.0, log)
    yield writer
    await writer.close()


async def whole_list(database: Database) -> list[CreditEntry]:
    return (await list_credits(database, ACCOUNT, BEGINNING, 1_000)).entries


async def in_pages(database: Database, size: int) -> list[CreditEntry]:
    entries: list[CreditEntry] = []
    after: CreditPosition | None = BEGINNING
    while after is not None:
        page = await list_credits(database, ACCOUNT, after, size)
        assert len(page.entries) <= size
        entries += page.entries
        after = page.next_after
    return entries


async def test_charges_of_a_day_come_after_its_grants_and_adjustments(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    calendar.on(0, 10)
    await ask_all(hasty, grant(1_000), reserve(1), settle(1, completion=3))
    calendar.on(0, 11)
    await ask_all(hasty, adjust(-20), reserve(2), settle(2, completion=2), grant(9, account="acct_other", grant_id="x"))
    calendar.on(2, 23)
    await ask_all(hasty, reserve(3), settle(3, completion=1), grant(7, grant_id="invoice-2"))
    assert await whole_list(database) == [
        CreditEntry("grant", FIRST_DAY_US + 10 * HOUR_US, 1_000, 1_000, "grant-1"),
        CreditEntry("adjustment", FIRST_DAY_US + 11 * HOUR_US, -20, 980, "adjustment-1", "a test"),
        CreditEntry("charges", FIRST_DAY_US, -50, 930),
        CreditEntry("grant", FIRST_DAY_US + 2 * DAY_US + 23 * HOUR_US, 7, 937, "invoice-2"),
        CreditEntry("charges", FIRST_DAY_US + 2 * DAY_US, -10, 927),
    ]


async def test_charge_that_came_late_is_one_of_the_day_on_which_it_came(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask_all(hasty, grant(1_000), reserve(1), settle(1, completion=1))
    # Overdue, and charged for what was known of it.
    await ask(hasty, reserve(2, prompt=5))
    calendar.on(0, 1)
    await ask(hasty, sweep(2))
    calendar.on(3)
    await ask(hasty, settle(2, completion=4, prompt=5))
    calendar.on(4)
    await ask_all(hasty, reserve(3), settle(3, completion=2))
    with database.transaction(writes=False) as connection:
        kinds = connection.execute(sa.select(ledger.c.kind)).scalars().all()
    assert "late_charge" in kinds
    listed = await whole_list(database)
    assert [(entry.kind, (entry.at_us - FIRST_DAY_US) // DAY_US) for entry in listed] == [
        ("grant", 0),
        ("charges", 0),
        ("charges", 3),
        ("charges", 4),
    ]
    assert [entry.amount_nanos for entry in listed] == [1_000, -10, -50, -20]
    assert listed == expected_from_the_ledger(database)


async def test_list_is_what_the_ledger_says_on_whatever_pages(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    dice = random.Random(20261116)
    for number in range(60):
        calendar.on(number // 6, dice.randint(number % 6, 12))
        booking = f"booking-{number}"
        operations: list[Operation[Any]] = [
            grant(dice.randint(1, 900), grant_id=booking),
            adjust(dice.randint(-300, 300), adjustment_id=booking),
            reserve(number, output=5),
            settle(dice.randint(0, number), completion=dice.randint(0, 9)),
            sweep(dice.randint(0, number)),
        ]
        await ask_all(hasty, *dice.choices(operations, k=6))
    assert await audit(database) == []
    whole = await whole_list(database)
    assert len(whole) > 30
    assert whole == expected_from_the_ledger(database)
    [account] = await database.read(read_balances, [ACCOUNT])
    assert whole[-1].balance_nanos == account.balance_nanos
    for size in (1, 3, len(whole) - 1, len(whole), len(whole) + 1):
        assert await in_pages(database, size) == whole


def expected_from_the_ledger(database: Database) -> list[CreditEntry]:
    """Row by row."""
    with database.transaction(writes=False) as connection:
        query = sa.select(ledger).where(ledger.c.account_id == ACCOUNT)
        rows = connection.execute(query.order_by(ledger.c.recorded_at_us, ledger.c.entry_id)).all()
    changes: list[tuple[Any, ...]] = []
    for day_us, of_day in groupby(rows, lambda row: row.recorded_at_us // DAY_US * DAY_US):
        entries = list(of_day)
        credits = [row for row in entries if row.kind in ("grant", "adjustment")]
        changes += [
            (row.kind, row.recorded_at_us, row.customer_nanos, row.request_id, row.reason or "") for row in credits
        ]
        if charged := sum(row.customer_nanos for row in entries if row not in credits):
            changes.append(("charges", day_us, charged, "", ""))
    balances = accumulate(change[2] for change in changes)
    return [
        CreditEntry(kind, at_us, amount, balance, booking_id, reason)
        for (kind, at_us, amount, booking_id, reason), balance in zip(changes, balances, strict=True)
    ]


async def test_page_that_follows_counts_what_was_booked_meanwhile(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask_all(hasty, *(grant(10, grant_id=f"g{number}") for number in range(4)))
    first = await list_credits(database, ACCOUNT, BEGINNING, 2)
    await ask_all(hasty, reserve(1), settle(1, completion=1))
    assert first.next_after is not None
    rest = await list_credits(database, ACCOUNT, first.next_after, 10)
    assert [entry.balance_nanos for entry in rest.entries] == [30, 40, 30]


async def test_credits_are_found_by_their_account(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    statements: list[tuple[str, Any]] = []

    def record(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        statements.append((statement, parameters))

    sa.event.listen(database.engine, "before_cursor_execute", record)
    with database.transaction(writes=True) as connection:
        sum_bookings(connection, ACCOUNT, 0, 2**62, BEGINNING)
        read_bookings(connection, ACCOUNT, 0, 2**62, 10, BEGINNING)
        explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
        for statement, parameters in statements[-2:]:
            plan = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
            # Each partition of PostgreSQL's has one of its own.
            assert "credits_by_account" in str(plan)


async def test_list_over_the_wire(admin: Any) -> None:
    for number in range(3):
        await admin.GrantCredits(pb.GrantCreditsRequest(operation_id=f"g{number}", account_id=ACCOUNT, amount_nanos=5))
    first = await admin.ListCredits(pb.ListCreditsRequest(account_id=ACCOUNT, page_size=2))
    assert [(entry.kind, entry.amount_nanos, entry.balance_nanos, entry.booking_id) for entry in first.entries] == [
        (pb.CREDIT_KIND_GRANT, 5, 5, "g0"),
        (pb.CREDIT_KIND_GRANT, 5, 10, "g1"),
    ]
    request = pb.ListCreditsRequest(account_id=ACCOUNT, page_size=2, page_token=first.next_page_token)
    second = await admin.ListCredits(request)
    assert [entry.balance_nanos for entry in second.entries] == [15]
    assert second.next_page_token == ""


async def test_account_without_bookings_has_an_empty_list(admin: Any) -> None:
    page = await admin.ListCredits(pb.ListCreditsRequest(account_id="acct_unknown"))
    assert (list(page.entries), page.next_page_token) == ([], "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"account_id": "no id"}, "account_id"),
        ({"page_size": -1}, "page_size"),
        *(({"page_token": token}, "page_token") for token in ("x", "MSAy=", "eCB5", "MSAx IA==", "MDEgMQ==", "é")),
        ({"page_token": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5IDE="}, "page_token"),
    ],
)
async def test_wrong_question_is_refused(admin: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await admin.ListCredits(pb.ListCreditsRequest(**{"account_id": ACCOUNT, **fields}))
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, param)
