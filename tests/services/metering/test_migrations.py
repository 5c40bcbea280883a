from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from services.chassis.database.database import Database, open_database
from services.chassis.database.schema_version import prepare_table
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.store.prices import adopt_prices
from services.metering.months.store.partitions import list_partitions
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import LIFE_S, PRICES, ask, grant

HOLD = (
    "INSERT INTO holds (request_id, account_id, key_id, class_id, state, amount_nanos, price_version, deadline_at_us,"
    ' prompt_tokens, cached_tokens, completion_tokens, charged_nanos, loss_nanos, loss_bound_nanos, basis, "end",'
    " counted_hour_us, reserved_at_us, resolved_at_us)"
    " VALUES ('r1', 'acct_a', 'key_a', 'forte', 'held', 5, 1, 9, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 1, NULL)"
)
GRANT = (
    "INSERT INTO ledger (entry_id, kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos,"
    " loss_nanos, external_nanos, key_id, class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens,"
    ' completion_tokens, basis, "end", reason)'
    " VALUES (7, 'grant', 'g1', 'acct_a', 10, 1, 0, 0, -10, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL, NULL)"
)


@pytest.fixture
def release_0_1_0(tmp_path: Path) -> Iterator[Database]:
    """A file of SQLite as 0.1.0 has it, with a little in it."""
    database = open_database("metering", "", tmp_path)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with database.transaction(writes=True) as connection:
        config.attributes["connection"] = connection
        prepare_table(connection)
        command.upgrade(config, "0004")
        for statement in ("INSERT INTO accounts VALUES ('acct_a', 10, 5)", HOLD, GRANT):
            connection.exec_driver_sql(statement)
    yield database
    database.close()


def rows_of(database: Database, table: str) -> list[tuple[Any, ...]]:
    with database.transaction(writes=False) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}")]


async def test_books_are_the_same_after_the_upgrade(release_0_1_0: Database) -> None:
    tables = ("accounts", "usage_hours", "holds", "ledger")
    before = [rows_of(release_0_1_0, table) for table in tables]
    release_0_1_0.migrate(MIGRATIONS)
    after = [rows_of(release_0_1_0, table) for table in tables]
    # All have more columns since.
    both = zip(after, before, strict=True)
    assert [[row[: len(old)] for row, old in zip(*rows, strict=True)] for rows in both] == before
    assert await audit(release_0_1_0) == []


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
def test_checks_refuse(release_0_1_0: Database, change: str) -> None:
    release_0_1_0.migrate(MIGRATIONS)
    with pytest.raises(sa.exc.IntegrityError), release_0_1_0.transaction(writes=True) as connection:
        connection.exec_driver_sql(change)


async def test_ledger_of_postgresql_becomes_the_first_partition_and_goes_on(postgres_url: str, log: Log) -> None:
    database = Database(postgres_url, "metering")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("CREATE SCHEMA metering")
        config.attributes["connection"] = connection
        prepare_table(connection)
        command.upgrade(config, "0004")
        connection.exec_driver_sql("INSERT INTO accounts VALUES ('acct_a', 10, 0)")
        connection.exec_driver_sql(GRANT.replace(" VALUES", " OVERRIDING SYSTEM VALUE VALUES"))
    before = rows_of(database, "ledger")
    database.migrate(MIGRATIONS)
    assert [row[: len(before[0])] for row in rows_of(database, "ledger")] == before
    with database.transaction(writes=True) as connection:
        prices = adopt_prices(connection, PRICES)
    writer = Writer(database, prices, LIFE_S, log)
    # The grant from before is known, and later entries have higher ids.
    for grant_id, balance_nanos in (("g1", 10), ("g2", 20), ("g2", 20)):
        found = await ask(writer, grant(10, account="acct_a", grant_id=grant_id))
        assert found.balance_nanos == balance_nanos
    await writer.close()
    assert [row[0] for row in rows_of(database, "ledger")] == [7, 8]
    assert await audit(database) == []
    with database.transaction(writes=False) as connection:
        names = [partition.name for partition in list_partitions(connection)]
    # The first has this month and the next.
    assert (names[0], len(names)) == ("ledger_first", 3)
    database.close()


def test_ledger_of_postgresql_is_attached_without_being_read_while_writes_wait(postgres_url: str) -> None:
    database = Database(postgres_url, "metering")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("CREATE SCHEMA metering")
        config.attributes["connection"] = connection
        prepare_table(connection)
        command.upgrade(config, "0004")
        connection.exec_driver_sql(GRANT.replace(" VALUES", " OVERRIDING SYSTEM VALUE VALUES"))
        # What an earlier attempt left: the month that it was made in is over.
        left = "ADD CONSTRAINT ledger_is_of_first_partition CHECK (recorded_at_us < 100)"
        connection.exec_driver_sql(f"ALTER TABLE ledger {left}")
    database.engine.dispose()
    said: list[tuple[str, str]] = []
    statements: list[str] = []

    @sa.event.listens_for(database.engine, "connect")
    def listen(connection: Any, record: Any) -> None:
        record.driver_connection.execute("SET client_min_messages = debug1")
        record.driver_connection.commit()
        record.driver_connection.add_notice_handler(
            lambda notice: said.append((statements[-1], notice.message_primary))
        )

    sa.event.listen(database.engine, "before_cursor_execute", lambda c, cursor, text, *_: statements.append(text))
    database.migrate(MIGRATIONS)
    [attach] = [text for text in statements if "ATTACH PARTITION ledger_first" in text]
    # Otherwise it says that it verifies the table.
    implied = 'partition constraint for table "ledger_first" is implied by existing constraints'
    assert [message for text, message in said if text == attach and "ledger_first" in message] == [implied]
    validate = next(number for number, text in enumerate(statements) if "VALIDATE CONSTRAINT" in text)
    assert validate < next(number for number, text in enumerate(statements) if "RENAME TO ledger_first" in text)
    with database.transaction(writes=False) as connection:
        checks = connection.exec_driver_sql("SELECT count(*) FROM pg_constraint WHERE conname LIKE '%%first_partition'")
        assert checks.scalar_one() == 0
    database.close()
