"""Draws bar charts as SVG. Pure functions: figures in, markup out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup, escape

from console.display.words import usd

# Units of the drawing, which is stretched to the width of the page.
BAR = 10
GAP = 3
HEIGHT = 200
MOST_SERIES = 5
# The name of the part that all others are.
REST = "…"
# A figure too small to see is drawn this high: there was something.
LEAST_HEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    # Nano-dollars by day, as many as there are days.
    values: tuple[int, ...]

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
        return round_up(max(self.day_totals, default=0))

    @property
    def svg(self) -> Markup:
        """Stacks the series of each day, the largest lowest. Each bar has its figures as a title."""
        width = len(self.days) * (BAR + GAP) - GAP
        top = max(self.top, 1)
        parts = [
            f'<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}" vector-effect="non-scaling-stroke"/>'
            for y in (0, HEIGHT // 2, HEIGHT)
        ]
        for place in range(len(self.days)):
            stacked, rects, figures = float(HEIGHT), [], []
            for number, series in enumerate(self.series, start=1):
                if value := series.values[place]:
                    height = max(LEAST_HEIGHT, value / top * HEIGHT)
                    stacked -= height
                    where = f'x="{place * (BAR + GAP)}" y="{stacked:.4g}" width="{BAR}" height="{height:.4g}"'
                    rects.append(f'<rect class="s{number}" {where}/>')
                    figures.append(f"{series.name} {usd(value)}")
            if rects:
                title = self.titles[place] if self.has_whole_titles else f"{self.titles[place]}: {', '.join(figures)}"
                parts.append(f'<g class="bar"><title>{escape(title)}</title>{"".join(rects)}</g>')
        shape = f'viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none"'
        # Numbers, and titles that are escaped above.
        return Markup(f'<svg class="bars" {shape} aria-hidden="true" focusable="false">{"".join(parts)}</svg>')  # noqa: S704


def cost_chart(days: Sequence[date], costs: Mapping[str, Mapping[date, int]], titles: Sequence[str]) -> CostChart:
    """Orders series by their total, the largest first; those beyond the colours are drawn as one."""
    names = sorted(costs, key=lambda name: (-sum(costs[name].values()), name))
    shown = [Series(name, tuple(costs[name].get(each, 0) for each in days)) for name in names]
    if len(shown) > MOST_SERIES:
        rest = shown[MOST_SERIES - 1 :]
        others = tuple(sum(series.values[place] for series in rest) for place in range(len(days)))
        shown = [*shown[: MOST_SERIES - 1], Series(REST, others)]
    return CostChart(tuple(days), tuple(shown), tuple(titles))


def round_up(nanos: int) -> int:
    """Returns the next 1, 2 or 5 times a power of ten: the end of an axis."""
    if nanos <= 0:
        return 0
    power: int = 10 ** (len(str(nanos)) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= nanos)
