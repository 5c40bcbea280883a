"""Reads the tables of a TOML file key by key, and collects all mistakes, each with its key."""

import math
from typing import Any

from services.chassis.money import parse_usd


class Table:
    """A TOML table that tracks which of its keys were read."""

    def __init__(self, mistakes: list[str], path: str, fields: dict[str, Any]) -> None:
        self._mistakes = mistakes
        self._path = path
        self._fields = dict(fields)

    def mistake(self, key: str, what: str) -> None:
        path = ".".join(part for part in (self._path, key) if part)
        self._mistakes.append(f"{path}: {what}")

    def has(self, key: str) -> bool:
        return key in self._fields

    def pop(self, key: str) -> Any:
        return self._fields.pop(key, None)

    def text(self, key: str, *, one_of: tuple[str, ...] = (), default: str | None = None) -> str:
        value = self.pop(key)
        if value is None:
            if default is None:
                self.mistake(key, "is missing")
            return default or ""
        if not isinstance(value, str) or not value:
            self.mistake(key, "must be a non-empty string")
            return ""
        if one_of and value not in one_of:
            self.mistake(key, f'is "{value}", but must be one of {", ".join(one_of)}')
        return value

    def texts(self, key: str) -> list[str]:
        value = self.pop(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self.mistake(key, "must be a non-empty list of names")
            return []
        return value

    def positive(self, key: str) -> int:
        value = self.pop(key)
        if value is None:
            self.mistake(key, "is missing")
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.mistake(key, "must be a whole number above zero")
        else:
            return value
        return 1

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._fields.pop(key, default)
        if not isinstance(value, bool):
            self.mistake(key, "must be true or false")
            return default
        return value

    def must_be_true(self, key: str, why: str) -> None:
        if not self.has(key):
            self.mistake(key, f"is missing: {why}")
        elif self.pop(key) is not True:
            self.mistake(key, f"must be true: {why}")

    def seconds(self, key: str, *, or_zero: bool = False) -> float:
        value = self.pop(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (0 < value < math.inf or (or_zero and value == 0)):
            self.mistake(key, f"must be a number of seconds above zero{', or 0' if or_zero else ''}")
            return 1.0
        return float(value)

    def dollars(self, key: str) -> int:
        """Returns nano-dollars."""
        value = self.pop(key)
        try:
            nanos = parse_usd(value) if isinstance(value, str) else -1
        except ValueError:
            nanos = -1
        if nanos < 0:
            self.mistake(key, 'must be dollars in a string, like "0.10", with at most nine decimals')
            return 0
        return nanos

    def inner(self, key: str) -> "Table":
        """Returns a table within this one."""
        return Table(self._mistakes, f"{self._path}.{key}", self.table(key))

    def table(self, key: str) -> dict[str, Any]:
        value = self.pop(key)
        if value is not None and not isinstance(value, dict):
            self.mistake(key, "must be a table")
        return value if isinstance(value, dict) else {}

    def tables(self, key: str) -> list[tuple[str, "Table"]]:
        found = []
        for name, fields in self.table(key).items():
            if isinstance(fields, dict):
                found.append((name, Table(self._mistakes, f"{key}.{name}", fields)))
            else:
                self.mistake(f"{key}.{name}", "must be a table")
        return found

    def finish(self) -> None:
        for key in self._fields:
            self.mistake(key, "is not a known key")
