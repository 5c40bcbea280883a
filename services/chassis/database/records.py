"""Makes tables from records, and reads and writes their rows as records: columns have the names and types of fields."""

from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, SimpleNamespace
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import sqlalchemy as sa

RecordT = TypeVar("RecordT")
ColumnType = sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]]

_TYPES: Final[dict[Any, type[sa.types.TypeEngine[Any]]]] = {
    str: sa.Text,
    int: sa.BigInteger,
    bool: sa.Boolean,
    bytes: sa.LargeBinary,
}

# The primary keys of records that have a table, which the column knows.
_KEYS: Final[dict[type, sa.Column[Any]]] = {}

# The names and types of a record's fields, in their order.
_fields_of = cache(get_type_hints)


class Enumerated(sa.TypeDecorator[Any]):
    """Stores a value of an enumeration of texts."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: object, dialect: sa.Dialect) -> object:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: object, dialect: sa.Dialect) -> object:
        return None if value is None else self.kind(value)


class EnumeratedNumber(Enumerated):
    """Stores a value of an enumeration of numbers."""

    impl = sa.Integer  # type: ignore[assignment]
    cache_ok = True


class EnumeratedSet(Enumerated):
    """Stores several values of an enumeration, separated by commas."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else ",".join(each.value for each in value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any | None:
        return None if value is None else tuple(self.kind(name) for name in value.split(",") if name)


def columns_of(record: type, *key: str, **others: ColumnType | sa.ForeignKey) -> list[sa.Column[Any]]:
    """Returns a column for each field, in their order; those of `key` are the primary key. `others` are foreign keys of
    columns, and types that differ from the field's. A record in a record has its own columns, or else a type."""
    columns: list[sa.Column[Any]] = []
    for name, annotation in _fields_of(record).items():
        other = others.get(name)
        if is_dataclass(annotation) and other is None:
            columns += columns_of(annotation)  # type: ignore[arg-type]
            continue
        has_own_type = other is None or isinstance(other, sa.ForeignKey)
        column = sa.Column(name, _type_of(annotation) if has_own_type else other, primary_key=name in key)
        if isinstance(other, sa.ForeignKey):
            column.append_foreign_key(other)
        # A type for a record says what NULL means.
        column.nullable = NoneType in get_args(annotation) or is_dataclass(annotation)
        columns.append(column)
        if key == (name,):
            _KEYS[record] = column
    return columns


def _type_of(annotation: Any) -> ColumnType:
    if get_origin(annotation) is Literal:
        return sa.Text
    if get_origin(annotation) is tuple:
        return EnumeratedSet(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return EnumeratedNumber(annotation) if issubclass(annotation, int) else Enumerated(annotation)
    # An optional value has the type of the value.
    some = [each for each in get_args(annotation) if each is not NoneType]
    return _type_of(some[0]) if some else _TYPES[annotation]


def to_record(kind: type[RecordT], row: object, **given: object) -> RecordT:
    """Builds a record of a row, which may have further columns, and of what is `given` instead."""
    for name, inner in _inner_of(kind):  # type: ignore[arg-type]
        if name not in given:
            given[name] = getattr(row, name) if inner is None or hasattr(row, name) else to_record(inner, row)
    return kind(**given)


@cache
def _inner_of(kind: Any) -> list[tuple[str, Any]]:
    """Lists the fields of a record, each with its type if that is a record too."""
    return [(name, given if is_dataclass(given) else None) for name, given in _fields_of(kind).items()]


def part_of(row: sa.Row[Any], table: sa.Table) -> SimpleNamespace:
    """Returns the columns of one table, of a row of several."""
    return SimpleNamespace(**{column.name: row._mapping[column] for column in table.c})


def values_of(table: sa.Table, record: object) -> dict[str, object]:
    """Returns what a table stores of a record, by column."""
    values: dict[str, object] = {}
    for name in _fields_of(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        values |= {name: value} if name in table.c else values_of(table, value)
    return values


def add(connection: sa.Connection, record: object, **others: object) -> None:
    """Inserts a record into its table, with the values of `others` columns."""
    table = _KEYS[type(record)].table
    connection.execute(sa.insert(table).values(**values_of(table, record), **others))


def get(connection: sa.Connection, kind: type[RecordT], row_id: str, *, locks: bool = False) -> RecordT | None:
    """Returns the record with a primary key; None: there is none."""
    key = _KEYS[kind]
    return find(connection, kind, sa.select(key.table).where(key == row_id), locks=locks)


def find(
    connection: sa.Connection, kind: type[RecordT], query: sa.Executable, *, locks: bool = False
) -> RecordT | None:
    """Returns the first record that a query finds; None: there is none. It `locks` the row until the commit."""
    row = connection.execute(query.with_for_update() if locks and isinstance(query, sa.Select) else query).first()
    return None if row is None else to_record(kind, row)


def find_all(connection: sa.Connection, kind: type[RecordT], query: sa.Executable) -> list[RecordT]:
    return [to_record(kind, row) for row in connection.execute(query)]


def take(connection: sa.Connection, kind: type[RecordT], *is_it: sa.ColumnElement[bool]) -> RecordT | None:
    """Deletes a row and returns its record in one statement: of two who do so at once, one gets it."""
    table = _KEYS[kind].table
    return find(connection, kind, sa.delete(table).where(*is_it).returning(*table.c))
