"""Stand-ins for what a test must control itself: the time."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """A `Clock` that moves only when it is told to."""

    def __init__(self) -> None:
        self._start = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
        self._elapsed_s = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def elapsed_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds
