"""Statements for many rows at once, with the same text for any number of them, so that they are prepared once.

They run on the driver's own cursor: SQLAlchemy's overhead would exceed most of them. PostgreSQL gets the rows as one
JSON value: a statement per row costs the server and the driver twice as much. SQLite runs in our own process, and gets
them one by one.
"""

# Names come from our own tables, values are always parameters:
# ruff: noqa: S608

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

Row = tuple[Any, ...]


class RowsStatement:
    """A statement in both dialects. A row has a value for each of `names`, in their order."""

    def __init__(self, names: Iterable[str], sqlite: str, postgresql: str) -> None:
        self._sqlite = sqlite
        self._postgresql = postgresql
        # The type that encodes to JSON fastest.
        self._as_object: type[Any] = msgspec.defstruct("Row", map(str, names))

    def run(self, connection: sa.Connection, rows: Sequence[Row]) -> int:
        """Runs it; returns how many rows were inserted or changed."""
        return write_all(connection, [(self, rows)])[0]

    def begin(self, cursor: Any, rows: Sequence[Row], *, is_sqlite: bool) -> None:
        """Runs it on the driver's cursor, which then has the number of rows; in a pipeline, at its end."""
        if is_sqlite:
            cursor.executemany(self._sqlite, rows)
        else:
            cursor.execute(self._postgresql, (_to_json(self._as_object(*row) for row in rows),))


Write = tuple[RowsStatement, Sequence[Row]]


def write_all(connection: sa.Connection, writes: Iterable[Write]) -> list[int]:
    """Runs statements in their order; returns how many rows each has inserted or changed. PostgreSQL gets all of them
    at once, and answers once."""
    driver: Any = connection.connection
    if connection.dialect.name == "sqlite":
        changed = []
        cursor = driver.cursor()
        for statement, rows in writes:
            statement.begin(cursor, rows, is_sqlite=True)
            changed.append(cursor.rowcount)
        return changed
    cursors = []
    with driver.driver_connection.pipeline():
        for statement, rows in writes:
            cursor = driver.cursor()
            statement.begin(cursor, rows, is_sqlite=False)
            cursors.append(cursor)
    return [cursor.rowcount for cursor in cursors]


def insert_rows(table: sa.Table, names: Iterable[str], on_conflict: str = "") -> RowsStatement:
    """Builds an INSERT; `on_conflict` calls the existing row `found`, and the new one `excluded`."""
    types = _types(table, names)
    into = f"INSERT INTO {table.name} AS found ({_quoted(types)})"
    return RowsStatement(
        types,
        f"{into} VALUES ({', '.join('?' for _ in types)}) {on_conflict}",
        f"{into} SELECT {_quoted(types)} FROM {_given(types)} {on_conflict}",
    )


def update_rows(table: sa.Table, key: str, changes: Iterable[str], found: Iterable[str]) -> RowsStatement:
    """Builds an UPDATE. Rows have the key, the changes, and the expected value of each column in `found`: a row that
    differs is not changed."""
    changed, guards = _types(table, changes), _types(table, found)
    given = _types(table, [key]) | changed | {f"found_{name}": kind for name, kind in guards.items()}
    number = {name: f"?{position}" for position, name in enumerate(given, start=1)}
    update = f"UPDATE {table.name} SET"
    own_changes = ", ".join(f'"{name}" = {number[name]}' for name in changed)
    own_guards = "".join(f" AND {name} = {number[f'found_{name}']}" for name in guards)
    given_changes = ", ".join(f'"{name}" = given."{name}"' for name in changed)
    given_guards = "".join(f" AND {table.name}.{name} = given.found_{name}" for name in guards)
    return RowsStatement(
        given,
        f"{update} {own_changes} WHERE {key} = {number[key]}{own_guards}",
        f"WITH given AS (SELECT * FROM {_given(given)}) {update} {given_changes} FROM given"
        f" WHERE {table.name}.{key} = given.{key}{given_guards}"
        # The keys again, as an array, so that PostgreSQL uses the index even without statistics.
        f" AND {table.name}.{key} = ANY (ARRAY(SELECT {key} FROM given))",
    )


class Lookup:
    """A query for rows whose column is one of the given texts."""

    def __init__(self, select: str, column: str, rest: str = "", *, lock: str = "") -> None:
        """Builds the query: `select` ends before its WHERE; `rest` follows the condition. `lock` is for PostgreSQL: in
        SQLite a writer has locked everything."""
        self.sqlite = f"{select} WHERE {column} IN (SELECT value FROM json_each(?)) {rest}"
        self.postgresql = (
            f"{select} WHERE {column} = ANY (ARRAY(SELECT json_array_elements_text(CAST(%s AS json)))) {rest} {lock}"
        )

    def run(self, connection: sa.Connection, texts: Iterable[str]) -> list[Row]:
        return read_all(connection, [self.of(connection, texts)])[0]

    def of(self, connection: sa.Connection, texts: Iterable[str]) -> "Query":
        return self.sqlite if connection.dialect.name == "sqlite" else self.postgresql, (_to_json(texts),)


# A text and its parameters.
Query = tuple[str, tuple[Any, ...]]


def read_all(connection: sa.Connection, queries: Iterable[Query]) -> list[list[Row]]:
    """Runs queries in their order; returns the rows of each. PostgreSQL gets all of them at once, and answers once.
    Each sees what was committed before it began, also if the one before had to wait for a lock."""
    driver: Any = connection.connection
    if connection.dialect.name == "sqlite":
        cursor = driver.cursor()
        return [cursor.execute(*query).fetchall() for query in queries]
    cursors = []
    with driver.driver_connection.pipeline():
        for query in queries:
            cursor = driver.cursor()
            cursor.execute(*query)
            cursors.append(cursor)
    return [cursor.fetchall() for cursor in cursors]


def select_all(table: sa.Table, *, without: Iterable[str] = ()) -> str:
    return f"SELECT {_quoted(column.name for column in table.c if column.name not in without)} FROM {table.name}"


def _to_json(values: Iterable[Any]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _types(table: sa.Table, names: Iterable[str]) -> dict[str, str]:
    return {name: str(table.c[name].type) for name in names}


def _given(types: Mapping[str, str]) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    return f"json_to_recordset(CAST(%s AS json)) AS given ({columns})"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
