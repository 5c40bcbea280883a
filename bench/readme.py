"""`python -m bench.readme FIGURES.json`: writes the figures of a run into the documents, between their markers."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from bench.figures import Figures
from bench.measurements.beside_relay import BURST, CASES, MANY, ONE, PACED, SLOW_10, SLOW_100
from bench.measurements.promises import PROMISES, Promise
from bench.report import CALIBRATION, Row, doubts
from bench.targets import DIRECT

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


ROOT: Final = Path(__file__).parents[1]
BEGIN: Final = "<!-- figures: {name} -->"
END: Final = "<!-- /figures -->"
CHART: Final = Path("docs/performance.svg")
SUMMARY: Final = "summary"
DETAILS: Final = "details"

PANELS: Final = (
    Panel("CPU µs a chunk, 10 slow streams (logarithmic)", SLOW_10.name, "CPU µs a chunk"),
    Panel("CPU µs a chunk, 100 slow streams", SLOW_100.name, "CPU µs a chunk"),
    Panel("CPU ms a chat, 64 at once", MANY.name, "CPU ms a chat"),
    Panel("CPU µs a chunk, 32 streams in bursts", BURST.name, "CPU µs a chunk"),
    Panel("CPU µs a chunk, 200 paced streams", PACED.name, "CPU µs a chunk"),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("figures_file", metavar="FIGURES.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def readme(figures_file: Path) -> None:
    """Write the figures of a run beside the relay, with or without peers, into the documents."""
    figures = msgspec.json.decode(figures_file.read_bytes(), type=Figures)
    update(figures, ROOT)
    if (doubt := doubts(figures.rows)) is not None:
        click.echo(doubt, err=True)


def update(figures: Figures, root: Path) -> None:
    for path, name, text in (
        (root / "README.md", SUMMARY, summary(figures)),
        (root / "docs" / "performance.md", DETAILS, details(figures)),
    ):
        path.write_text(replace_marked(path.read_text(), name, text))
    (root / CHART).write_text(draw(figures.rows, PANELS))


def replace_marked(document: str, name: str, text: str) -> str:
    begin = BEGIN.format(name=name)
    before, found, rest = document.partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise click.ClickException(f"There is no place for the figures: {begin} … {END} is missing.")
    return f"{before}{begin}\n{text}\n{END}{after}"


class Line(NamedTuple):
    """A row of a table: one figure of all targets."""

    heading: str
    measurement: str
    figure: str
    aim: str = ""


def summary(figures: Figures) -> str:
    """Returns the headline figures."""
    headlines = [_goal(promise) for promise in PROMISES if promise.is_headline]
    return "\n".join([*_table(figures, headlines), "", _conditions(figures)])


def details(figures: Figures) -> str:
    """Returns the cost of each case, all goals, and the chart."""
    unit = {case.name: "CPU ms a chat" if case in (ONE, MANY) else "CPU µs a chunk" for case in CASES}
    costs = [Line(f"{figure}, {case}", case, figure) for case, figure in unit.items()]
    table = "\n".join(_table(figures, [*costs, *map(_goal, PROMISES)]))
    return "\n\n".join([table, _conditions(figures), f"![CPU a chat and a chunk]({CHART.name})"])


def _goal(promise: Promise) -> Line:
    about = promise.about[0].upper() + promise.about[1:]
    heading = f"{about}, {promise.unit}" if promise.unit else about
    aim = f"≤ {promise.most:g}" + (" + a disk sync" if promise.beside_disk_sync else "")
    return Line(heading, promise.measurement, promise.figure, aim)


def _table(figures: Figures, lines: Sequence[Line]) -> Iterator[str]:
    """Yields a row for each line, with a column for each target."""
    found = {(row.measurement, row.case): row.figures for row in figures.rows}
    targets = list(
        dict.fromkeys(row.case for row in figures.rows if row.measurement == MANY.name and row.case != DIRECT)
    )
    cells = [["", *targets, "Aim"]]
    for line in lines:
        seen = [found.get((line.measurement, target), {}).get(line.figure) for target in targets]
        cells.append([line.heading, *map(_figure, seen), line.aim])
    yield from _markdown(cells)


def _conditions(figures: Figures) -> str:
    machine = figures.machine
    drift = _calibration(figures.rows, "most / least")
    sync_ms = _calibration(figures.rows, "disk sync p50 ms")
    share = max(row.others_share for row in figures.rows)
    return (
        f"Medians of one run on {machine['processors']} processors ({machine['kind']}, Python {machine['python']}) that"
        f" the load and the mock upstream share; a disk sync takes {sync_ms:.2f} ms. Others took up to {share:.0%} of"
        f" the processors, whose speed differed by {drift - 1:.0%} within the run."
    )


def _calibration(rows: Sequence[Row], figure: str) -> float:
    return next((row.figures[figure] or 0.0 for row in rows if row.measurement == CALIBRATION), 0.0)


def _markdown(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *others = lines
    yield _markdown_line(head)
    yield "|" + "---|" * len(head)
    yield from map(_markdown_line, others)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    readme()
