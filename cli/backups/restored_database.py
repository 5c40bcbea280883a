"""A new PostgreSQL database that a backup is restored to.

A schema of its own marks it until the restore is complete, so that one that was interrupted is known, and begun again.
"""

import contextlib
from collections.abc import Iterable
from typing import Final

import psycopg
import sqlalchemy as sa
from psycopg import sql

from cli.backups.postgres_programs import APPLICATION, PostgresFailed, one_line_errors

MARK: Final = "legato_restore"
_MARKED: Final = sql.Identifier(MARK, "unfinished")
_END_INTERRUPTED: Final = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = %s
"""


class TargetNotEmpty(PostgresFailed):
    """The database has tables of the service that no interrupted restore of this backup has left."""


def url_of(url: str, name: str) -> str:
    """Returns the address of another database of the same server."""
    return sa.make_url(url).set(database=name).render_as_string(hide_password=False)


def name_of(url: str) -> str:
    return sa.make_url(url).database or ""


def create_database(server_url: str, name: str) -> None:
    """Creates a database on the server of an address, unless it exists."""
    with one_line_errors(), contextlib.closing(_open_any_session(server_url)) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            # UTF-8 whatever the server's own default is.
            create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name))
            connection.execute(create)


def _open_any_session(url: str) -> psycopg.Connection:
    """Connects to the database of the address; if that is lost, to the one that every server has."""
    try:
        return psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError:
        return psycopg.connect(url_of(url, "postgres"), autocommit=True)


def begin_restore(url: str, backup: str, schemas: Iterable[str]) -> None:
    """Marks an empty database, or empties one that an interrupted restore of the same backup has left."""
    with one_line_errors(), psycopg.connect(url) as connection:
        connection.execute(_END_INTERRUPTED, [APPLICATION])
        found = [name for name in schemas if _has_schema(connection, name)]
        if not _has_schema(connection, MARK):
            if found:
                raise TargetNotEmpty(f"the database {name_of(url)} has the schemas {', '.join(found)} already")
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(MARK)))
            connection.execute(sql.SQL("CREATE TABLE {} (backup text)").format(_MARKED))
            connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(_MARKED), [backup])
            return
        other = connection.execute(sql.SQL("SELECT backup FROM {} WHERE backup <> %s").format(_MARKED), [backup])
        if row := other.fetchone():
            raise TargetNotEmpty(f"the database {name_of(url)} has an unfinished restore of {row[0]}")
        for name in found:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def end_restore(url: str) -> None:
    with one_line_errors(), psycopg.connect(url) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(MARK)))


def _has_schema(connection: psycopg.Connection, name: str) -> bool:
    row = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [name]).fetchone()
    return row is not None
