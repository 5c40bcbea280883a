from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from services.chassis.database.database import Database, open_database
from services.metering.auditor import audit
from tests.services.metering.conftest import MIGRATIONS

HOLD = (
    "INSERT INTO holds VALUES ('r1', 'acct_a', 'key_a', 'forte', 'held', 5, 1, 9, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,"
    " 1, NULL)"
)
GRANT = (
    "INSERT INTO ledger VALUES (7, 'grant', 'g1', 'acct_a', 10, 1, 0, 0, -10, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL,"
    " NULL)"
)


@pytest.fixture
def before_lean_checks(tmp_path: Path) -> Iterator[Database]:
    """A file of SQLite as it was at 0003, with a little in it."""
    database = open_database("metering", "", tmp_path)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with database.transaction(writes=True) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in ("INSERT INTO accounts VALUES ('acct_a', 10, 5)", HOLD, GRANT):
            connection.exec_driver_sql(statement)
    yield database
    database.close()


def rows_of(database: Database, table: str) -> list[tuple[Any, ...]]:
    with database.transaction(writes=False) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}")]


async def test_books_are_the_same_with_leaner_checks(before_lean_checks: Database) -> None:
    tables = ("accounts", "usage_hours", "holds", "ledger")
    before = [rows_of(before_lean_checks, table) for table in tables]
    before_lean_checks.migrate(MIGRATIONS)
    after = [rows_of(before_lean_checks, table) for table in tables]
    # An account has a column more since.
    after[0] = [row[:3] for row in after[0]]
    assert after == before
    assert await audit(before_lean_checks) == []


@pytest.mark.parametrize(
    "change",
    [
        HOLD.replace("'r1'", "'r2'").replace("'held'", "'lost'"),
        HOLD.replace("'r1'", "'r2'").replace("'held', 5", "'held', -5"),
        HOLD,
        GRANT.replace("7, 'grant', 'g1'", "8, 'gift', 'g1'"),
        GRANT.replace("7, 'grant', 'g1'", "8, 'charge', 'r1'"),
        GRANT.replace("7,", "8,"),
        "UPDATE ledger SET reason = 'x'",
        "DELETE FROM ledger",
    ],
)
def test_leaner_checks_still_refuse(before_lean_checks: Database, change: str) -> None:
    before_lean_checks.migrate(MIGRATIONS)
    with pytest.raises(sa.exc.IntegrityError), before_lean_checks.transaction(writes=True) as connection:
        connection.exec_driver_sql(change)
