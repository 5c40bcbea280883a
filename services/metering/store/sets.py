"""Statements that take many rows at once, with the same text for any number of them, so that they are prepared once.

PostgreSQL gets the rows as one JSON value: a statement for each of them costs the server and the driver twice as much.
SQLite is in our own process, and gets them one by one.
"""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_WITH_ROWCOUNT: Final = {"preserve_rowcount": True}


class RowsStatement(NamedTuple):
    """The same in both dialects. Rows are dicts; a statement takes from them what it has a name for."""

    sqlite: str
    postgresql: str

    def run(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> int:
        """Says how many rows of the table it has put or changed."""
        if connection.dialect.name == "sqlite":
            return connection.exec_driver_sql(self.sqlite, rows, _WITH_ROWCOUNT).rowcount
        return connection.exec_driver_sql(self.postgresql, (to_json(rows),), _WITH_ROWCOUNT).rowcount


def insert_rows(table: sa.Table, names: Iterable[str], on_conflict: str = "") -> RowsStatement:
    """`on_conflict` says `found` for the row that is there, and `excluded` for the one that was to be put."""
    types = _types(table, names)
    into = f"INSERT INTO {table.name} AS found ({_quoted(types)})"
    return RowsStatement(
        f"{into} VALUES ({', '.join(f':{name}' for name in types)}) {on_conflict}",
        f"{into} SELECT {_quoted(types)} FROM {_given(types)} {on_conflict}",
    )


def update_rows(table: sa.Table, key: str, changes: Iterable[str], found: Iterable[str]) -> RowsStatement:
    """Changes a row only where it is as it was found: of each column in `found`, rows have a value `found_…`, too."""
    changed, guards = _types(table, changes), _types(table, found)
    given = _types(table, [key]) | changed | {f"found_{name}": kind for name, kind in guards.items()}
    update = f"UPDATE {table.name} SET"
    own_changes = ", ".join(f'"{name}" = :{name}' for name in changed)
    own_guards = "".join(f" AND {name} = :found_{name}" for name in guards)
    given_changes = ", ".join(f'"{name}" = given."{name}"' for name in changed)
    given_guards = "".join(f" AND {table.name}.{name} = given.found_{name}" for name in guards)
    return RowsStatement(
        f"{update} {own_changes} WHERE {key} = :{key}{own_guards}",
        f"WITH given AS (SELECT * FROM {_given(given)}) {update} {given_changes} FROM given"
        f" WHERE {table.name}.{key} = given.{key}{given_guards}"
        # The keys once more, as an array: rows are looked up by them, however little PostgreSQL knows of the table yet.
        f" AND {table.name}.{key} = ANY (ARRAY(SELECT {key} FROM given))",
    )


class among(FunctionElement[bool]):  # noqa: N801 - it is used as a function
    """`among(column, texts)` is true where the column is one of the texts in a JSON array."""

    inherit_cache = True
    type = sa.Boolean()


@compiles(among, "sqlite")
def _among_in_sqlite(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, texts = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(among, "postgresql")
def _among_in_postgresql(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, texts = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY (ARRAY(SELECT json_array_elements_text(CAST({texts} AS json))))"


def to_json(values: Iterable[Any]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _types(table: sa.Table, names: Iterable[str]) -> dict[str, str]:
    return {name: str(table.c[name].type) for name in names}


def _given(types: Mapping[str, str]) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    return f"json_to_recordset(CAST(%s AS json)) AS given ({columns})"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
