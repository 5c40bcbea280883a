"""Draws the figures of a run as a bar chart."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from bench.report import Row

WIDTH: Final = 760
NAME_WIDTH: Final = 150
FIGURE_WIDTH: Final = 90
BAR_HEIGHT: Final = 16
BAR_STEP: Final = 22
HEAD_HEIGHT: Final = 34
OURS: Final = "#1f6feb"
OTHERS: Final = "#9aa4b2"


class Panel(NamedTuple):
    title: str
    measurement: str
    figure: str


def draw(rows: Sequence[Row], panels: Sequence[Panel]) -> str:
    """Draws a panel for each cost, with a bar for each target."""
    parts: list[str] = []
    y = 8
    for panel in panels:
        costs = [(row.case, row.figures.get(panel.figure)) for row in rows if row.measurement == panel.measurement]
        known = [(name, cost) for name, cost in costs if cost]
        if not known:
            continue
        parts.append(f'<text x="0" y="{y + 14}" font-weight="bold">{escape(panel.title)}</text>')
        y += HEAD_HEIGHT - 8
        # The lowest value gets a visible bar, too.
        least, most = math.log10(min(cost for _, cost in known) / 2), math.log10(max(cost for _, cost in known))
        for name, cost in known:
            part = (math.log10(cost) - least) / (most - least)
            parts += _bar(name, cost, part * (WIDTH - NAME_WIDTH - FIGURE_WIDTH), y)
            y += BAR_STEP
        y += 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="13"'
        f' fill="#57606a">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _bar(name: str, cost: float, length: float, y: int) -> list[str]:
    color = OURS if name.startswith("Legato") else OTHERS
    return [
        f'<text x="{NAME_WIDTH - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{NAME_WIDTH}" y="{y}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="2" fill="{color}"/>',
        f'<text x="{NAME_WIDTH + length + 6:.1f}" y="{y + 13}">{cost:,.3g}</text>',
    ]
