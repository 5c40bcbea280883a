"""Both databases do the same with many rows."""

from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.database import Database
from services.metering.records import Hold
from services.metering.store.sets import among, insert_rows, to_json, update_rows
from services.metering.store.tables import accounts, holds, usage_hours

INSERT_ACCOUNTS = insert_rows(accounts, ["account_id", "balance_nanos", "held_nanos"])
UPDATE_ACCOUNTS = update_rows(accounts, "account_id", ["balance_nanos"], found=["balance_nanos", "held_nanos"])


def account(account_id: str, balance_nanos: int = 10, held_nanos: int = 0, **found: int) -> dict[str, Any]:
    return {"account_id": account_id, "balance_nanos": balance_nanos, "held_nanos": held_nanos, **found}


def rows_of(connection: sa.Connection, table: sa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key))]


def test_rows_come_back_as_they_were_put(database: Database) -> None:
    odd = Hold("1", 'it\'s "%s" :a ü\\', "", "forte", "held", amount_nanos=2**63 - 1, price_version=1)
    with database.transaction(writes=True) as connection:
        assert insert_rows(holds, Hold.__struct_fields__).run(connection, [asdict(odd)]) == 1
        assert Hold(*rows_of(connection, holds)[0]) == odd


def test_only_rows_that_are_as_they_were_found_are_changed(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        assert INSERT_ACCOUNTS.run(connection, [account("a"), account("b"), account("c", 10, 5), account("d")]) == 4
        changes = [
            account("a", 11, found_balance_nanos=10, found_held_nanos=0),
            account("b", 12, found_balance_nanos=9, found_held_nanos=0),
            account("c", 13, found_balance_nanos=10, found_held_nanos=0),
            account("nobody", 14, found_balance_nanos=10, found_held_nanos=0),
        ]
        assert UPDATE_ACCOUNTS.run(connection, changes) == 1
        assert rows_of(connection, accounts) == [("a", 11, 0), ("b", 10, 0), ("c", 10, 5), ("d", 10, 0)]


def test_rows_that_are_there_already_are_added_to(database: Database) -> None:
    counted = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "loss_nanos")
    add = insert_rows(
        usage_hours,
        usage_hours.c.keys(),
        "ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE"
        " SET requests = found.requests + excluded.requests",
    )
    first = {"account_id": "a", "key_id": "k", "class_id": "forte", "hour_us": 1} | dict.fromkeys(counted, 1)
    with database.transaction(writes=True) as connection:
        assert add.run(connection, [first]) == 1
        assert add.run(connection, [first | {"requests": 2}, first | {"hour_us": 2}]) == 2
        assert [row[:5] for row in rows_of(connection, usage_hours)] == [
            ("a", 1, "k", "forte", 3),
            ("a", 2, "k", "forte", 1),
        ]


@pytest.mark.parametrize("too_much", [2**63, 2**64])
def test_number_that_does_not_fit_is_refused(database: Database, too_much: int) -> None:
    with pytest.raises((sa.exc.DBAPIError, OverflowError)), database.transaction(writes=True) as connection:
        INSERT_ACCOUNTS.run(connection, [account("a"), account("b", too_much)])
    with database.transaction(writes=False) as connection:
        assert rows_of(connection, accounts) == []


def test_rows_are_looked_up_by_any_number_of_texts(database: Database) -> None:
    statement = sa.select(accounts.c.account_id).where(among(accounts.c.account_id, sa.bindparam("ids", type_=sa.Text)))
    names = [f"{number}'\"%" for number in range(300)]
    with database.transaction(writes=True) as connection:
        INSERT_ACCOUNTS.run(connection, [account(name) for name in names])
        for asked in ([], names[:1], [*names[:2], "nobody"], names):
            found = connection.scalars(statement, {"ids": to_json(asked)}).all()
            assert sorted(found) == sorted({*asked} - {"nobody"})
