"""Converts rows to records and back: columns have the names of fields, and their types."""

from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

import sqlalchemy as sa

from services.auth.records.accounts import ClassAllowance

RecordT = TypeVar("RecordT")


def to_record(kind: type[RecordT], row: Any, **given: Any) -> RecordT:
    """Builds a record of a row, which may have further columns, and of what is `given` instead."""
    names = (field.name for field in fields(kind) if field.name not in given)  # type: ignore[arg-type]
    return kind(**{name: getattr(row, name) for name in names}, **given)


def values_of(record: Any) -> dict[str, Any]:
    """Returns what is stored of a record, by column."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


class Enumerated(sa.TypeDecorator[Any]):
    """Stores a value of an enumeration of texts."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any | None, dialect: sa.Dialect) -> Any | None:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> Any | None:
        return None if value is None else self.kind(value)


class EnumeratedNumber(Enumerated):
    """Stores a value of an enumeration of numbers."""

    impl = sa.Integer  # type: ignore[assignment]
    cache_ok = True


class EnumeratedSet(Enumerated):
    """Stores several values of an enumeration, separated by commas."""

    cache_ok = True

    def process_bind_param(self, value: Any | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else ",".join(each.value for each in value)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> Any | None:
        return None if value is None else tuple(self.kind(name) for name in value.split(",") if name)


class StoredAllowance(sa.TypeDecorator[ClassAllowance]):
    """Stores the names of allowed classes, separated by commas. NULL: all classes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: ClassAllowance | None, dialect: sa.Dialect) -> str | None:
        return None if value is None or value.class_ids is None else ",".join(value.class_ids)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> ClassAllowance:
        return ClassAllowance(None if value is None else tuple(name for name in value.split(",") if name))
