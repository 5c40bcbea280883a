"""Reads the tables of a TOML file key by key, and collects all mistakes, each with its key."""

import sys
from collections.abc import Mapping
from dataclasses import MISSING
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from services.chassis.money import parse_usd

NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})
_LONGEST_S: Final = sys.float_info.max


class Nanos(int):
    """An amount in nano-dollars, which is a text in the file."""


# The kinds of values, each with the message for any other.
TEXT: Final = Annotated[str, Meta(min_length=1, description="must be a non-empty string")]
NAMES: Final = Annotated[list[str], Meta(min_length=1, description="must be a non-empty list of names")]
TEXTS: Final = Annotated[list[str], Meta(description="must be a list of words")]
POSITIVE: Final = Annotated[int, Meta(ge=1, description="must be a whole number above zero")]
PERCENT: Final = Annotated[float, Meta(gt=0, le=100, description="must be a number above zero, up to 100")]
FLAG: Final = Annotated[bool, Meta(description="must be true or false")]
SECONDS: Final = Annotated[float, Meta(gt=0, le=_LONGEST_S, description="must be a number of seconds above zero")]
DOLLARS: Final = Annotated[
    Nanos, Meta(description='must be dollars in a string, like "0.10", with at most nine decimals')
]
DATE: Final = Annotated[date, Meta(description="must be a date, like 2027-06-30")]
TABLE: Final = Annotated[dict[str, Any], Meta(description="must be a table")]
TABLES: Final = Annotated[list[dict[str, Any]], Meta(min_length=1, description="must be a non-empty list of tables")]


class Table:
    """A TOML table that tracks which of its keys were read."""

    def __init__(self, mistakes: list[str], path: str, fields: dict[str, Any]) -> None:
        self._mistakes = mistakes
        self._path = path
        self._fields = dict(fields)

    @property
    def mistakes_so_far(self) -> int:
        """Returns how many mistakes of the file were found."""
        return len(self._mistakes)

    def mistake(self, key: str, what: str) -> None:
        self._mistakes.append(f"{self._path_of(key)}: {what}")

    def _path_of(self, key: str) -> str:
        return ".".join(part for part in (self._path, key) if part)

    @property
    def keys(self) -> list[str]:
        """Returns the keys that were not read yet."""
        return list(self._fields)

    def has(self, key: str) -> bool:
        return key in self._fields

    def read(self, key: str, kind: Any, default: object = MISSING) -> Any:
        """Returns the value of a key, which is a mistake if it is of another kind, or missing without a default."""
        if key in self._fields:
            try:
                return msgspec.convert(self._fields.pop(key), kind, dec_hook=_read_nanos)
            except msgspec.ValidationError:
                self.mistake(key, get_args(kind)[1].description)
        elif default is MISSING:
            self.mistake(key, "is missing")
        # Stands for a value, so that the rest of the file can be checked.
        return get_args(kind)[0]() if default is MISSING else default

    def choose(self, key: str, options: tuple[str, ...], default: object = MISSING) -> str:
        """Returns a text that must be one of these."""
        value: str = self.read(key, TEXT, default)
        if value and value not in options:
            self.mistake(key, f'is "{value}", but must be one of {", ".join(options)}')
        return value

    def inner(self, key: str) -> "Table":
        """Returns a table within this one."""
        return Table(self._mistakes, self._path_of(key), self.read(key, TABLE, {}))

    def tables(self, key: str) -> dict[str, "Table"]:
        """Returns the tables within a table, by name."""
        outer = self.inner(key)
        return {name: outer.inner(name) for name in outer.keys}

    def listed(self, key: str) -> list["Table"]:
        """Returns the tables of a list, whose paths end with their numbers."""
        return [
            Table(self._mistakes, f"{self._path_of(key)}.{number}", fields)
            for number, fields in enumerate(self.read(key, TABLES), start=1)
        ]

    def finish(self, removed: Mapping[str, str] = NO_KEYS) -> None:
        """Reports the keys that were not read; `removed` has what became of those of earlier releases."""
        for key in self._fields:
            self.mistake(key, f"was removed: {removed[key]}; delete it" if key in removed else "is not a known key")


def _read_nanos(kind: type, value: object) -> Nanos:
    nanos = Nanos(parse_usd(value) if isinstance(value, str) else -1)
    if nanos < 0:
        raise ValueError
    return nanos
