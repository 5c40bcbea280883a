"""Both databases do the same with many rows."""

from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import astuple

from services.chassis.database.database import Database
from services.metering.credit.records import Hold
from services.metering.credit.store.tables import COUNTED, accounts, holds, usage_hours
from services.metering.store.sets import Lookup, Row, insert_rows, select_all, update_rows

INSERT_ACCOUNTS = insert_rows(accounts, ["account_id", "balance_nanos", "held_nanos"])
UPDATE_ACCOUNTS = update_rows(accounts, "account_id", ["balance_nanos"], found=["balance_nanos", "held_nanos"])


def rows_of(connection: sa.Connection, table: sa.Table) -> list[Row]:
    return [tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key))]


def test_rows_come_back_as_they_were_put(database: Database) -> None:
    odd = Hold("1", 'it\'s "%s" :a ü\\', "", "forte", "held", amount_nanos=2**63 - 1, price_version=1)
    with database.transaction(writes=True) as connection:
        assert insert_rows(holds, Hold.__struct_fields__).run(connection, [astuple(odd)]) == 1
        assert Hold(*rows_of(connection, holds)[0]) == odd


def test_only_rows_that_are_as_they_were_found_are_changed(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        assert INSERT_ACCOUNTS.run(connection, [("a", 10, 0), ("b", 10, 0), ("c", 10, 5), ("d", 10, 0)]) == 4
        # Whose, the new balance, and the balance and what is held as they were found.
        changes = [("a", 11, 10, 0), ("b", 12, 9, 0), ("c", 13, 10, 0), ("unknown", 14, 10, 0)]
        assert UPDATE_ACCOUNTS.run(connection, changes) == 1
        changed = [row[:3] for row in rows_of(connection, accounts)]
        assert changed == [
            ("a", 11, 0),
            ("b", 10, 0),
            ("c", 10, 5),
            ("d", 10, 0),
        ]


def test_rows_that_are_there_already_are_added_to(database: Database) -> None:
    add = insert_rows(
        usage_hours,
        usage_hours.c.keys(),
        "ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE"
        " SET requests = found.requests + excluded.requests",
    )
    tokens_and_costs = (1,) * (len(COUNTED) - 1)
    with database.transaction(writes=True) as connection:
        assert add.run(connection, [("a", 1, "k", "forte", 1, *tokens_and_costs)]) == 1
        more = [("a", 1, "k", "forte", 2, *tokens_and_costs), ("a", 2, "k", "forte", 1, *tokens_and_costs)]
        assert add.run(connection, more) == 2
        assert [row[:5] for row in rows_of(connection, usage_hours)] == [
            ("a", 1, "k", "forte", 3),
            ("a", 2, "k", "forte", 1),
        ]


@pytest.mark.parametrize("too_much", [2**63, 2**64])
def test_number_that_does_not_fit_is_refused(database: Database, too_much: int) -> None:
    driver: Any = database.engine.dialect.loaded_dbapi
    with pytest.raises((driver.Error, OverflowError)), database.transaction(writes=True) as connection:
        INSERT_ACCOUNTS.run(connection, [("a", 10, 0), ("b", too_much, 0)])
    with database.transaction(writes=False) as connection:
        assert rows_of(connection, accounts) == []


def test_rows_are_looked_up_by_any_number_of_texts(database: Database) -> None:
    kept = ("account_id", "balance_nanos")
    select = select_all(accounts, without=[column.name for column in accounts.c if column.name not in kept])
    lookup = Lookup(select, "account_id", "AND balance_nanos > 0")
    names = [f"{number}'\"%" for number in range(300)]
    with database.transaction(writes=True) as connection:
        INSERT_ACCOUNTS.run(connection, [("poor", 0, 0), *((name, 10, 0) for name in names)])
        for asked in ([], names[:1], [*names[:2], "unknown", "poor"], names):
            found = lookup.run(connection, asked)
            assert sorted(found) == sorted((name, 10) for name in {*asked} - {"unknown", "poor"})
