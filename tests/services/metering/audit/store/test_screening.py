"""Suspects of the audit are few, and enough."""

from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.audit.auditor import audit
from services.metering.audit.store import screening
from services.metering.audit.store.checks import expect_full_tables, read_scope
from services.metering.audit.store.entry_sums import screen_entries
from services.metering.audit.store.screening import find_suspects
from services.metering.credit.batch import Writer
from services.metering.credit.store.tables import ledger
from services.rules.usage import Usage
from tests.services.metering.audit.test_auditor import unguard
from tests.services.metering.samples import ask_each, extend, grant, request_id, reserve, settle, void

COLUMNS = ", ".join(f'"{column.name}"' for column in ledger.c if column.name != "entry_id")


@pytest.fixture
async def kept(database: Database, writer: Writer) -> Database:
    """Two requests that were charged, one that is held, one that was given back, and one that was given back at a
    loss."""
    await ask_each(writer, grant(1_000), *(reserve(number) for number in range(1, 6)))
    await ask_each(writer, settle(1, completion=3), settle(2, completion=3), void(4))
    await ask_each(
        writer, extend(5, 100, delivered=Usage(completion_tokens=1)), void(5, lost=Usage(completion_tokens=1))
    )
    return database


def suspects_of(database: Database) -> list[str] | None:
    with database.transaction(writes=False) as connection:
        expect_full_tables(connection)
        scope = read_scope(connection)
        return find_suspects(connection, scope, screen_entries(connection, scope))


async def test_requests_that_were_charged_held_or_given_back_in_order_are_no_suspects(kept: Database) -> None:
    assert suspects_of(kept) == [request_id(5)]


async def test_charge_that_takes_the_place_of_another_s_makes_all_requests_suspects(kept: Database) -> None:
    """Each row agrees with its hold, and so does the number of rows."""
    unguard(kept)
    with kept.engine.begin() as connection:
        connection.execute(sa.text(f"DELETE FROM ledger WHERE request_id = '{request_id(2)}'"))
        charge = f"SELECT {COLUMNS} FROM ledger WHERE request_id = '{request_id(1)}'"
        connection.execute(sa.text(f"INSERT INTO ledger ({COLUMNS}) {charge}"))
    assert suspects_of(kept) is None
    assert {
        f"charge of {request_id(1)}: booked 2 times",
        f"request {request_id(2)}: settled, though nothing was booked",
    } < {*await audit(kept)}


async def test_all_requests_are_checked_if_there_are_too_many_suspects(
    kept: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    unguard(kept)
    with kept.engine.begin() as connection:
        connection.execute(sa.text("UPDATE ledger SET requests = 2 WHERE kind = 'charge'"))
    found = await audit(kept)
    assert [line for line in found if "counted" in line] == [
        f"request {request_id(number)}: counted 2 times" for number in (1, 2)
    ]
    monkeypatch.setattr(screening, "SUSPECTS_AT_ONCE", 1)
    assert await audit(kept) == found
    monkeypatch.setattr(screening, "SUSPECTS_MOST", 1)
    assert suspects_of(kept) is None
    assert await audit(kept) == found


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_entries_of_closed_months_are_not_read(kept: Database) -> None:
    """SQLite would prefer the index of kind and request, which has all entries there ever were."""
    asked: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        asked.append((statement, parameters))

    sa.event.listen(kept.engine, "before_cursor_execute", record)
    assert await audit(kept) == []
    sa.event.remove(kept.engine, "before_cursor_execute", record)
    with kept.transaction(writes=False) as connection:
        cursor = connection.connection.cursor()
        plans = [
            cursor.execute(f"EXPLAIN QUERY PLAN {each}", values).fetchall()
            for each, values in asked
            if "ledger" in each
        ]
    steps = [step for plan in plans for *_, step in plan if "ledger" in step]
    assert [step for step in steps if step.endswith("(kind=?)")] == []
    assert "SEARCH ledger USING INTEGER PRIMARY KEY (rowid>?)" in steps
