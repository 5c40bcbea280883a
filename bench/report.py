"""Prints progress, tables and warnings about a run."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, TextIO

import msgspec

# If others use more CPU time than this, the figures are not reliable.
OTHERS_MOST: Final = 0.1
# The measurement of how much the CPU's speed varied, and the most that is tolerated.
CALIBRATION: Final = "calibration"
DRIFT_MOST: Final = 1.15


class Row(msgspec.Struct, frozen=True):
    measurement: str
    case: str
    # By names that include the unit. All rows of a measurement have the same ones; None if one does not apply.
    figures: dict[str, float | None]
    # Share of the CPU time that processes outside the measurement used.
    others_share: float


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def table(rows: Iterable[Row]) -> str:
    """Prints a block for each measurement."""
    return "\n\n".join(_block(name, list(block)) for name, block in groupby(rows, lambda row: row.measurement))


def doubts(rows: Sequence[Row]) -> str | None:
    """Returns the reasons why the figures are not reliable."""
    share = max(row.others_share for row in rows)
    drift = max((row.figures["most / least"] or 1.0 for row in rows if row.measurement == CALIBRATION), default=1.0)
    if share <= OTHERS_MOST and drift <= DRIFT_MOST:
        return None
    why = f"other processes took up to {share:.0%} of its processors"
    if drift > DRIFT_MOST:
        why += f", and the same piece of work took {drift:.2f} times as long at one time as at another"
    return f"The machine was busy: {why}. Do not trust these figures; run it again when the machine is idle."


def _block(name: str, rows: list[Row]) -> str:
    lines = [[name, *rows[0].figures, "others"]]
    lines += [[row.case, *map(_figure, row.figures.values()), f"{row.others_share:.0%}"] for row in rows]
    return "\n".join(align(lines))


def align(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligns the first column left and the others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        yield "  ".join(
            [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


WIDTH = 30


class Progress:
    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._steps = steps
        self._begun = 0
        self._name = ""
        self._expected_s = 1.0
        self._step_began_at_s = 0.0

    def step(self, name: str, expected_s: float) -> None:
        """Begins the next step."""
        self._begun += 1
        self._name, self._expected_s, self._step_began_at_s = name, expected_s, time.monotonic()
        self.show()

    def show(self) -> None:
        """Updates the display; called repeatedly."""
        if not self._is_shown:
            return
        part = min(1.0, (time.monotonic() - self._step_began_at_s) / self._expected_s)
        filled = round(WIDTH * (self._begun - 1 + part) / self._steps)
        bar = "#" * filled + "." * (WIDTH - filled)
        self._stream.write(f"\r\x1b[K[{bar}] {self._begun}/{self._steps} {self._name}")
        self._stream.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
