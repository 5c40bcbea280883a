"""The clock of a harness's books, which the campaign moves, so that months end within a round."""

import os
import time
from pathlib import Path
from typing import Final

from services.metering.credit.calendar import next_month_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.months.passes import LEASE_US

# Names the file in which processes read how far the clock is ahead.
VARIABLE: Final = "FAULTS_CLOCK"


class BookClock:
    def __init__(self, file: Path) -> None:
        self.file = file
        self._ahead_us = 0
        self._move(0)

    @property
    def now_us(self) -> int:
        return time.time_ns() // 1_000 + self._ahead_us

    def begin_month(self) -> None:
        """Moves the clock to noon of the tenth day of the next month: the last one can be closed."""
        now_us = self.now_us
        self._move(next_month_us(now_us) + 9 * DAY_US + 12 * HOUR_US - now_us)

    def end_leases(self) -> None:
        """Moves the clock until another process may take over what a dead one had begun."""
        self._move(LEASE_US)

    def _move(self, by_us: int) -> None:
        self._ahead_us += by_us
        draft = self.file.with_suffix(".draft")
        draft.write_text(str(self._ahead_us))
        draft.replace(self.file)


class MovedTime:
    """The expression that a database is asked for its time with, as far ahead as the file says."""

    def __init__(self, expression: object, file: Path) -> None:
        self._expression = expression
        self._file = file

    def __str__(self) -> str:
        return f"({self._expression} + {self._file.read_text()})"


def move_times(expressions: dict[str, object]) -> dict[str, object]:
    """Returns what the databases of this process are asked for; the same where its clock is not moved."""
    file = os.environ.get(VARIABLE)
    if file is None:
        return expressions
    return {kind: MovedTime(expression, Path(file)) for kind, expression in expressions.items()}
