"""Measurements as a table for people and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

# With more than this taken by others, figures say as much about them as about us.
OTHERS_MOST: Final = 0.1
# The measurement that says how even the processors' speed was, and how uneven it may be.
CALIBRATION: Final = "calibration"
DRIFT_MOST: Final = 1.15


class Row(msgspec.Struct, frozen=True):
    measurement: str
    case: str
    # By names that carry their units. All rows of a measurement have the same ones; None where one does not apply.
    figures: dict[str, float | None]
    # How much of the processors other people's processes took meanwhile.
    others_share: float


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def table(rows: Iterable[Row]) -> str:
    """A block for each measurement."""
    return "\n\n".join(_block(name, list(block)) for name, block in groupby(rows, lambda row: row.measurement))


def doubts(rows: Sequence[Row]) -> str | None:
    """Why these figures should not be trusted, if they should not."""
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
    """Aligns the first column to the left, and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        yield "  ".join(
            [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
