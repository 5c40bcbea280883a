"""Moves the time that databases tell, so that months pass within a test."""

import time
from datetime import UTC, datetime
from typing import Final

import pytest

from services.chassis.database.clock import NOW_US

_DAY_S: Final = 24 * 3600


class DatabaseTime:
    """The time of all databases that this process asks; it moves only forwards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._expressions = dict(NOW_US)
        self._ahead_s = 0

    def pass_s(self, seconds: int) -> None:
        self._ahead_s += seconds
        for kind, expression in self._expressions.items():
            self._monkeypatch.setitem(NOW_US, kind, f"{expression} + {self._ahead_s}000000")

    def pass_days(self, days: int) -> None:
        self.pass_s(days * _DAY_S)

    def begin_month(self) -> None:
        """Goes on to half past noon of the tenth day of the next month, whichever day is today."""
        now = datetime.fromtimestamp(time.time() + self._ahead_s, UTC)
        months = now.year * 12 + now.month
        then = datetime(months // 12, months % 12 + 1, 10, 12, 30, tzinfo=UTC)
        self.pass_s(round((then - now).total_seconds()))
