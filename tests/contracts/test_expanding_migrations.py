"""Migrations since the last release only add to its schemas, so that its processes run beside those of today."""

from pathlib import Path

import psycopg
import pytest

from services.chassis.database.database import Database
from tests.e2e.upgrades.release_data import RELEASES, SERVICES, load_postgresql

FOLDERS = Path(__file__).parents[2] / "services"
# What a migration may take away from the last release or refuse it, with the reason why its processes are still right.
ALLOWED = {
    "auth.api_keys: unique index auth.api_keys_by_caller is new": "The release leaves its first column empty.",
}

# Each gives a table, and something of it that the release relies on.
RELIED_ON = (
    """SELECT table_name, 'column ' || column_name || ' ' || data_type FROM information_schema.columns
       WHERE table_schema = %s""",
    "SELECT tablename, 'index ' || indexname FROM pg_indexes WHERE schemaname = %s",
    """SELECT routine_name, 'function' FROM information_schema.routines WHERE routine_schema = %s""",
)
# Each gives a table, and something that may refuse a row which the release writes. From PostgreSQL 18 on, a required
# column is a constraint of the kind n, too.
REFUSALS = (
    """SELECT table_name, 'column ' || column_name || ' is required' FROM information_schema.columns
       WHERE table_schema = %s AND is_nullable = 'NO' AND column_default IS NULL""",
    """SELECT relname, 'constraint ' || conname FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
       WHERE contype <> 'n' AND connamespace = to_regnamespace(%s)""",
    """SELECT relname, 'unique index ' || indexrelid::regclass FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
       WHERE indisunique AND relnamespace = to_regnamespace(%s)""",
    """SELECT relname, 'trigger ' || tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
       WHERE NOT tgisinternal AND relnamespace = to_regnamespace(%s)""",
)


def find(connection: psycopg.Connection, queries: tuple[str, ...], schema: str) -> set[tuple[str, str]]:
    return {row for query in queries for row in connection.execute(query.encode(), [schema])}


@pytest.mark.parametrize("service", SERVICES)
def test_what_the_last_release_reads_and_writes_is_still_there_and_accepted(postgres_url: str, service: str) -> None:
    load_postgresql(RELEASES[-1], postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        relied_on, refusals = (find(connection, queries, service) for queries in (RELIED_ON, REFUSALS))
        tables = {table for table, _ in relied_on}
        database = Database(postgres_url, service)
        database.migrate(FOLDERS / service / "migrations")
        database.close()
        gone = relied_on - find(connection, RELIED_ON, service)
        added = {(table, what) for table, what in find(connection, REFUSALS, service) - refusals if table in tables}
    found = [f"{service}.{table}: {what} is gone" for table, what in gone]
    found += [f"{service}.{table}: {what} is new" for table, what in added]
    assert sorted(found) == sorted(each for each in ALLOWED if each.startswith(f"{service}."))
