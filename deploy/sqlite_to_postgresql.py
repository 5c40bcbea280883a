"""Copies the SQLite databases of a service into an empty PostgreSQL: accounts, keys, the ledger, notes and documents.

    legato migrate                                      # creates the tables
    python -m deploy.sqlite_to_postgresql .legato

`LEGATO_DATABASE_URL`, or the file that `LEGATO_DATABASE_URL_FILE` names, is the address of PostgreSQL. Both databases
must have the same schema version, and no process may use them. docs/runbooks/scale-out.md has the whole procedure.
"""

import os
import sys
from pathlib import Path

from sqlalchemy import Connection, MetaData, Table, create_engine, delete, func, insert, select, text

from services.chassis.settings import SettingsError, read_variable

SCHEMAS = ("auth", "metering", "router")
ROWS_AT_ONCE = 1000
# Holds the schema version, which must be the same in both databases.
VERSION_TABLE = "schema_version"
# Migrations insert rows into these tables; the rows are replaced.
FILLED_TABLES = ("epoch", "audit_head", "retention")

# Triggers write its rows, as those that they are made from are copied.
SUMS_TABLE = "account_hours"

# Their rows are copied into the table that they are partitions of.
PARTITIONS = "SELECT relname FROM pg_class WHERE relispartition AND relnamespace = CAST(:schema AS regnamespace)"


class CannotCopy(Exception):
    pass


def copy_schema(file: Path, database_url: str, schema: str) -> dict[str, int]:
    """Copies all tables in one transaction. Returns the number of rows of each."""
    source = create_engine(f"sqlite:///{file}")
    destination = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with source.connect() as reading, destination.begin() as writing:
            found, wanted = MetaData(), MetaData(schema=schema)
            found.reflect(reading)
            wanted.reflect(writing)
            if not wanted.tables or _version(reading, found.tables) != _version(writing, wanted.tables, f"{schema}."):
                raise CannotCopy(f"{schema} does not have the schema version of {file}: run `legato migrate` on both")
            # As services do: triggers refuse writers that are older than the schema.
            writing.execute(text("SELECT set_config('legato.writer', 'on', true)"))
            partitions = set(writing.scalars(text(PARTITIONS), {"schema": schema}))
            passed_over = {VERSION_TABLE, SUMS_TABLE, *partitions}
            tables = [table for table in wanted.sorted_tables if table.name not in passed_over]
            copied = {table.name: _copy(reading, found.tables[table.name], writing, table) for table in tables}
            _advance_sequences(writing, schema)
            return copied
    finally:
        source.dispose()
        destination.dispose()


def _version(connection: Connection, tables: "dict[str, Table]", prefix: str = "") -> object:
    return connection.execute(select(tables[prefix + VERSION_TABLE].c.version_num)).all()


def _copy(reading: Connection, source: Table, writing: Connection, destination: Table) -> int:
    if destination.name in FILLED_TABLES:
        writing.execute(delete(destination))
    elif writing.execute(select(func.count()).select_from(destination)).scalar():
        raise CannotCopy(f"{destination.fullname} is not empty")
    copied = 0
    for rows in reading.execute(select(source)).yield_per(ROWS_AT_ONCE).partitions():
        writing.execute(insert(destination), [dict(row._mapping) for row in rows])
        copied += len(rows)
    return copied


def _advance_sequences(writing: Connection, schema: str) -> None:
    """Sets the sequences, so that generated ids continue after the last copied one."""
    numbered = text(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = :schema AND (is_identity = 'YES' OR column_default LIKE 'nextval%')"
    )
    for table, column in writing.execute(numbered, {"schema": schema}).all():
        sequence = f"pg_get_serial_sequence('{schema}.{table}', '{column}')"
        last = f"(SELECT max({column}) FROM {schema}.{table})"  # noqa: S608 - names from the database's own catalogue
        writing.execute(text(f"SELECT setval({sequence}, {last}) WHERE {last} IS NOT NULL"))


def main(folder: Path) -> None:
    database_url = read_variable("LEGATO_DATABASE_URL", os.environ)
    if not database_url:
        raise CannotCopy("LEGATO_DATABASE_URL is not set")
    for schema in SCHEMAS:
        file = folder / f"{schema}.db"
        if file.exists():
            for table, rows in copy_schema(file, database_url, schema).items():
                sys.stdout.write(f"{schema}.{table}: {rows}\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (CannotCopy, SettingsError) as error:
        sys.exit(str(error))
