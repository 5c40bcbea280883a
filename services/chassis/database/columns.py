"""Makes the columns of a table from the fields of the record that its rows are read to."""

from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
import sqlalchemy as sa

_TYPES: Final[dict[Any, type[sa.types.TypeEngine[Any]]]] = {
    str: sa.Text,
    int: sa.BigInteger,
    bool: sa.Boolean,
    bytes: sa.LargeBinary,
}


def columns_of(record: type[msgspec.Struct], *key: str) -> list[sa.Column[Any]]:
    """Returns a column for each field, in their order; those of `key` are the primary key."""
    return [
        sa.Column(field.name, _type_of(field.type), primary_key=field.name in key)
        for field in msgspec.structs.fields(record)
    ]


def _type_of(annotation: Any) -> type[sa.types.TypeEngine[Any]]:
    if get_origin(annotation) is Literal:
        return sa.Text
    # An optional value has the type of the value.
    some = [each for each in get_args(annotation) if each is not NoneType]
    return _type_of(some[0]) if some else _TYPES[annotation]
