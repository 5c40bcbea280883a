"""The version of a schema: the script that was run last, and the oldest processes that may use it.

A script with `REFUSES_OLDER = True` makes processes wrong that do not have it: these do not start on the schema, and
those that run already do not write any more. All other processes may use the schema beside newer ones.

Releases up to 0.1.0 read `alembic_version`, and take a revision that they do not know for compatible. So that name is a
view: of the revision, or, where they would be wrong, one that fails with a sentence.
"""

from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final, NamedTuple

import sqlalchemy as sa

TABLE: Final = "schema_version"
# Read with the start of each write.
OLDEST_QUERY: Final = f"SELECT oldest_num FROM {TABLE}"  # noqa: S608 - ours
_EARLIER_TABLE: Final = "alembic_version"
_REFUSAL: Final = "this database was migrated by a newer Legato: start that, or restore a backup (docs/upgrade.md)"


class SchemaVersion(NamedTuple):
    revision: str
    # Processes that have no script of this revision must not use the schema; empty: all may.
    oldest: str
    # The release that migrated it.
    release: str


def read_version(connection: sa.Connection) -> SchemaVersion | None:
    """Returns None before the first migration, or before the first by a release that keeps these versions."""
    if not sa.inspect(connection).has_table(TABLE):
        return None
    row = connection.execute(sa.text(f"SELECT version_num, oldest_num, release FROM {TABLE}")).one_or_none()  # noqa: S608
    return None if row is None else SchemaVersion(*row)


def revisions_of(folder: Path) -> list[str]:
    """Returns all revisions in order, read from file names: Alembic would have to run the scripts to know."""
    return sorted(script.name.lstrip("v").partition("_")[0] for script in folder.glob("versions/*[0-9]_*.py"))


def prepare_table(connection: sa.Connection) -> None:
    """Creates the table, or takes over the one of earlier releases."""
    inspector = sa.inspect(connection)
    if inspector.has_table(TABLE):
        return
    if _EARLIER_TABLE in inspector.get_table_names():
        connection.exec_driver_sql(f"ALTER TABLE {_EARLIER_TABLE} RENAME TO {TABLE}")
    else:
        connection.exec_driver_sql(f"CREATE TABLE {TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    for name in ("oldest_num", "release"):
        connection.exec_driver_sql(f"ALTER TABLE {TABLE} ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")


def record(connection: sa.Connection, oldest: str) -> None:
    """Records after the last script which processes may use the schema."""
    values = {"oldest": oldest, "release": version_of("legato")}
    connection.execute(sa.text(f"UPDATE {TABLE} SET oldest_num = :oldest, release = :release"), values)  # noqa: S608
    if not oldest:
        view = f"SELECT version_num FROM {TABLE}"  # noqa: S608 - ours
    elif connection.dialect.name == "sqlite":
        # No path in JSON: SQLite's error quotes it. Only triggers can raise errors of their own.
        view = f"SELECT json_extract('{{}}', '{_REFUSAL}') AS version_num"
    else:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION refuse_older_release() RETURNS text LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'insufficient_privilege'; END $$"
        )
        view = "SELECT refuse_older_release() AS version_num"
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {_EARLIER_TABLE}")
    connection.exec_driver_sql(f"CREATE VIEW {_EARLIER_TABLE} AS {view}")
