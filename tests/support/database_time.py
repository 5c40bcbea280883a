"""Moves the time that databases tell, so that months pass within a test."""

from typing import Final

import pytest

from services.chassis.database import database

_DAY_US: Final = 24 * 3_600_000_000


class DatabaseTime:
    """The time of all databases that this process asks; it moves only forwards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._queries = {name: str(getattr(database, name)) for name in ("_SQLITE", "_POSTGRESQL")}
        self.ahead_us = 0

    def pass_days(self, days: float) -> None:
        self.ahead_us += round(days * _DAY_US)
        for name, query in self._queries.items():
            self._monkeypatch.setattr(database, name, f"{query} + {self.ahead_us}")
