"""Queries that are compiled once and run on the driver's own cursor.

Around a query for a row or two, SQLAlchemy takes ten times as long as the database takes for it. Queries of every page
of the console, and of every call that a console makes, are compiled here.
"""

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa

Convert = Callable[[Any], Any]


class CompiledQuery:
    """A query with parameters that have names. Its rows have the names of the columns, and their types."""

    def __init__(self, query: "sa.Select[Any]") -> None:
        self._query: Final = query
        self._by_dialect: Final[WeakKeyDictionary[sa.Dialect, _Compiled]] = WeakKeyDictionary()

    def all(self, connection: sa.Connection, /, **values: Any) -> list[Any]:
        dialect = connection.dialect
        compiled = self._by_dialect.get(dialect)
        if compiled is None:
            compiled = self._by_dialect[dialect] = _Compiled(self._query, dialect)
        cursor = connection.connection.cursor()
        cursor.execute(compiled.text, compiled.parameters(values))
        return compiled.rows(cursor.fetchall(), dialect)

    def first(self, connection: sa.Connection, /, **values: Any) -> Any | None:
        rows = self.all(connection, **values)
        return rows[0] if rows else None


class _Compiled:
    def __init__(self, query: "sa.Select[Any]", dialect: sa.Dialect) -> None:
        compiled = query.compile(dialect=dialect)
        self.text = str(compiled)
        self._given = dict(compiled.params)
        # None: the driver takes them by name.
        self._order: list[str] | None = getattr(compiled, "positiontup", None)
        columns = list(query.selected_columns)
        self._row_type: Any = namedtuple("Row", [column.key for column in columns], rename=True)  # type: ignore[misc]
        self._decorated = [
            (number, column.type) for number, column in enumerate(columns) if isinstance(column.type, sa.TypeDecorator)
        ]
        converted = ((number, _conversion(column.type, dialect)) for number, column in enumerate(columns))
        self._converted = [(number, convert) for number, convert in converted if convert is not None]

    def parameters(self, values: dict[str, Any]) -> Any:
        merged = {**self._given, **values}
        return merged if self._order is None else [merged[name] for name in self._order]

    def rows(self, found: Sequence[Any], dialect: sa.Dialect) -> list[Any]:
        if not self._converted and not self._decorated:
            return list(map(self._row_type._make, found))
        rows = []
        for row in map(list, found):
            for number, convert in self._converted:
                row[number] = convert(row[number])
            for number, kind in self._decorated:
                row[number] = kind.process_result_value(row[number], dialect)
            rows.append(self._row_type._make(row))
        return rows


def _conversion(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> Convert | None:
    # A decorator's own conversion would keep the dialect, and with it this entry, for ever.
    if isinstance(kind, sa.TypeDecorator):
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)
