"""Draws bar charts as SVG. Pure functions: figures in, markup out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup, escape

from console.display.words import usd
from services.rules.model_classes import CLASSES

# Units of the drawing, which is stretched to the width of the page.
BAR = 10
GAP = 3
HEIGHT = 200
MOST_SERIES = 5
# The name of the part that all others are.
REST = "…"
# What stands in front is narrower by that much, on both sides.
NARROWER = 2.5
# A figure too small to see is drawn this high: there was something.
LEAST_HEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    # Nano-dollars by day, as many as there are days.
    values: tuple[int, ...]
    # From 1 to as many as there are.
    colour: int

    @property
    def total(self) -> int:
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class CostChart:
    # Or hours, or months, by their beginning.
    days: tuple[date, ...]
    series: tuple[Series, ...]
    # As many.
    titles: tuple[str, ...]
    # They have the values, which are no money.
    has_whole_titles: bool = False
    # Series add up, and stand on each other; others stand in front of each other, the first one last.
    is_sum: bool = True

    @property
    def total(self) -> int:
        return sum(series.total for series in self.series)

    @property
    def day_totals(self) -> list[int]:
        return [sum(series.values[place] for series in self.series) for place in range(len(self.days))]

    @property
    def rows(self) -> list[tuple[date, list[int]]]:
        """The values of every day that has any, the newest first."""
        days = [(when, [series.values[place] for series in self.series]) for place, when in enumerate(self.days)]
        return [(when, values) for when, values in reversed(days) if any(values)]

    @property
    def top(self) -> int:
        """The end of the axis."""
        if self.is_sum:
            return round_up(max(self.day_totals, default=0))
        return round_up(max((value for series in self.series for value in series.values), default=0))

    @property
    def svg(self) -> Markup:
        """Stacks the series of each day, the largest lowest, or puts each before the one before, narrower. Each bar has
        its figures as a title."""
        width = len(self.days) * (BAR + GAP) - GAP
        top = max(self.top, 1)
        parts = [
            f'<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}" vector-effect="non-scaling-stroke"/>'
            for y in (0, HEIGHT // 2, HEIGHT)
        ]
        for place in range(len(self.days)):
            stacked, rects, figures = float(HEIGHT), [], []
            for number, series in enumerate(self.series):
                if value := series.values[place]:
                    height = max(LEAST_HEIGHT, value / top * HEIGHT)
                    stacked = (stacked if self.is_sum else HEIGHT) - height
                    inset = 0 if self.is_sum else NARROWER * number
                    x, width_of = place * (BAR + GAP) + inset, BAR - 2 * inset
                    where = f'x="{x}" y="{stacked:.4g}" width="{width_of}" height="{height:.4g}"'
                    rects.append(f'<rect class="s{series.colour}" {where}/>')
                    figures.append(f"{series.name} {usd(value)}")
            if rects:
                title = self.titles[place] if self.has_whole_titles else f"{self.titles[place]}: {', '.join(figures)}"
                parts.append(f'<g class="bar"><title>{escape(title)}</title>{"".join(rects)}</g>')
        shape = f'viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none"'
        # Numbers, and titles that are escaped above.
        return Markup(f'<svg class="bars" {shape} aria-hidden="true" focusable="false">{"".join(parts)}</svg>')  # noqa: S704


def cost_chart(days: Sequence[date], costs: Mapping[str, Mapping[date, int]], titles: Sequence[str]) -> CostChart:
    """Orders series by their total, the largest first; those beyond the colours are drawn as one. A class has the same
    colour everywhere, whatever it costs."""
    names = sorted(costs, key=lambda name: (-sum(costs[name].values()), name))
    own = {name: CLASSES.index(name) + 1 for name in names if name in CLASSES}
    free = iter(colour for colour in range(1, len(names) + MOST_SERIES + 1) if colour not in own.values())
    shown = [
        Series(name, tuple(costs[name].get(each, 0) for each in days), own.get(name) or next(free)) for name in names
    ]
    if len(shown) > MOST_SERIES:
        rest = shown[MOST_SERIES - 1 :]
        others = tuple(sum(series.values[place] for series in rest) for place in range(len(days)))
        first = shown[: MOST_SERIES - 1]
        shown = [*first, Series(REST, others, free_colour(first))]
    return CostChart(tuple(days), tuple(shown), tuple(titles))


def free_colour(series: Sequence[Series]) -> int:
    """Returns the last colour that none of these has."""
    taken = {each.colour for each in series}
    return next(colour for colour in range(MOST_SERIES, 0, -1) if colour not in taken)


def round_up(nanos: int) -> int:
    """Returns the next 1, 2 or 5 times a power of ten: the end of an axis."""
    if nanos <= 0:
        return 0
    power: int = 10 ** (len(str(nanos)) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= nanos)
