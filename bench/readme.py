"""`python -m bench.readme FIGURES.json`: writes the figures of a run into the documents, between their markers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from bench.chart import Panel, draw
from bench.figures import Figures
from bench.measurements import agents, beside_relay
from bench.measurements.agents import KNOWN, NEW, ONE_AGENT, STEADY, TEN_AGENTS
from bench.measurements.beside_relay import BURST, FOOTPRINT, MANY, ONE, PACED, SLOW_10, SLOW_100
from bench.measurements.promises import BESIDE_PEERS, OF_CHATS, OF_PROMPTS, Promise
from bench.report import CALIBRATION, Row, doubts
from bench.targets import ON_POSTGRESQL, ON_SQLITE, RELAY

ROOT: Final = Path(__file__).parents[1]
BEGIN: Final = "<!-- figures: {name} -->"
END: Final = "<!-- /figures -->"
CHART: Final = Path("docs/performance.svg")
# The places in the documents: README's table, and those of the performance page.
SUMMARY: Final = "summary"
PEERS: Final = "peers"
AGENTS: Final = "agents"
DETAILS: Final = "details"
README: Final = Path("README.md")
PAGE: Final = Path("docs/performance.md")

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
    """Write the figures of a run into the documents: what was measured decides which tables."""
    figures = msgspec.json.decode(figures_file.read_bytes(), type=Figures)
    update(figures, ROOT)
    if (doubt := doubts(figures.rows)) is not None:
        click.echo(doubt, err=True)


def update_if_quiet(figures: Figures, root: Path = ROOT) -> None:
    """Writes the figures of a run, unless the machine was too busy to believe them."""
    if not any(_texts(figures)):
        return
    if doubts(figures.rows) is None:
        for path in update(figures, root):
            click.echo(f"The figures are in {path}.")
    else:
        click.echo("They are not written into the documents; `python -m bench.readme` does, from the file of --json.")


def update(figures: Figures, root: Path) -> list[Path]:
    """Returns the documents that were written."""
    written = []
    for path, name, text in _texts(figures):
        document = root / path
        document.write_text(replace_marked(document.read_text(), name, text))
        written.append(path)
    if DETAILS in (name for _, name, _ in _texts(figures)):
        (root / CHART).write_text(draw(figures.rows, PANELS))
        written.append(CHART)
    return list(dict.fromkeys(written))


def _texts(figures: Figures) -> Iterator[tuple[Path, str, str]]:
    """Yields the tables that these figures suffice for."""
    measured = {row.measurement for row in figures.rows}
    if set(_targets(figures)) - {RELAY, ON_SQLITE, ON_POSTGRESQL}:
        yield README, SUMMARY, f"{INTRODUCTION}\n\n{_text(figures, HEADLINES)}"
        yield PAGE, PEERS, _text(figures, [*BESIDE_OTHERS, *map(_goal, BESIDE_PEERS)])
    elif measured.issuperset(case.name for case in agents.CASES):
        yield PAGE, AGENTS, _text(figures, [*PROMPTS, *map(_goal, OF_PROMPTS)])
    if measured.issuperset(case.name for case in beside_relay.CASES):
        yield PAGE, DETAILS, details(figures)


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
    promise: Promise
    aim: str = ""


def _line(heading: str, measurement: str, figure: str, aim: str = "") -> Line:
    return Line(heading, Promise(heading, measurement, figure, 0.0), aim)


_TURN: Final = "CPU ms a turn"
_ADDED: Final = "added p50 ms"
_ADDED_P99: Final = "added p99 ms"
_MEMORY: Final = _line("Memory, idle, MiB", FOOTPRINT, "idle MiB")
_CHAT: Final = _line("CPU ms a short chat, 64 at once", MANY.name, "CPU ms a chat")
_CHUNK: Final = _line("CPU µs a chunk, 10 slow streams", SLOW_10.name, "CPU µs a chunk")

INTRODUCTION: Final = """\
The prompts are those of agents: 20 turns each, which grow from 30 to 300 KB, with 12 tools. Most of the other gateways
check no key here, and none holds credit."""
# What a newcomer sees: short, and of what agents send first.
HEADLINES: Final = (
    _line("10 agents at work: CPU ms a turn", TEN_AGENTS.name, _TURN),
    _line("… added to the first token, p50, ms", TEN_AGENTS.name, _ADDED),
    _line("… and p99, ms", TEN_AGENTS.name, _ADDED_P99),
    _line("Prompt of 300 KB, the next of its session: CPU ms", KNOWN["300 KB"].name, _TURN, "≤ 3 times the relay's"),
    _line("… added to the answer, p50, ms", KNOWN["300 KB"].name, _ADDED, "≤ 8"),
    _line("Prompt of 300 KB, never seen: CPU ms", NEW["300 KB"].name, _TURN, "≤ 8 times the relay's"),
    _line("Prompt of 1 MB, the next of its session: CPU ms", KNOWN["1 MB"].name, _TURN, "≤ 5 times the relay's"),
    _CHAT,
    _CHUNK,
    _MEMORY,
)
PROMPTS: Final = (
    *(
        _line(f"{heading}, {case.name}", case.name, figure)
        for case in (ONE_AGENT, TEN_AGENTS)
        for heading, figure in (
            ("CPU ms a turn", _TURN),
            ("Added to the first token p50, ms", _ADDED),
            ("Added to the first token p99, ms", _ADDED_P99),
            ("Memory at most, MiB", "peak MiB"),
        )
    ),
    *(_line(f"CPU ms, {case.name}", case.name, _TURN) for cases in (KNOWN, NEW) for case in cases.values()),
    *(_line(f"Added p50, ms, {case.name}", case.name, _ADDED) for cases in (KNOWN, NEW) for case in cases.values()),
    _line(f"Turns/s, {STEADY.name}", STEADY.name, "turns/s"),
    _line("… to the first token p50, ms", STEADY.name, "p50 ms"),
    _line("… to the first token p99, ms", STEADY.name, "p99 ms"),
)
BESIDE_OTHERS: Final = (
    *PROMPTS,
    _CHAT,
    _CHUNK,
    _MEMORY,
    _line("Start to first answer, s", FOOTPRINT, "first answer s"),
)


def details(figures: Figures) -> str:
    """Returns the cost of each case of short chats and streams, their goals, and the chart."""
    unit = {case.name: "CPU ms a chat" if case in (ONE, MANY) else "CPU µs a chunk" for case in beside_relay.CASES}
    costs = [_line(f"{figure}, {case}", case, figure) for case, figure in unit.items()]
    return "\n\n".join([_text(figures, [*costs, *map(_goal, OF_CHATS)]), f"![CPU a chat and a chunk]({CHART.name})"])


def _text(figures: Figures, lines: Sequence[Line]) -> str:
    return "\n".join([*_table(figures, lines), "", _conditions(figures)])


def _goal(promise: Promise) -> Line:
    about = promise.about[0].upper() + promise.about[1:]
    heading = f"{about}, {promise.unit}" if promise.unit else about
    aim = f"≤ {promise.most:g}" + (" + a disk sync" if promise.beside_disk_sync else "")
    return Line(heading, promise, aim)


def _table(figures: Figures, lines: Sequence[Line]) -> Iterator[str]:
    """Yields a row for each line, with a column for each target."""
    found = {(row.measurement, row.case): row.figures for row in figures.rows}
    targets = _targets(figures)
    cells = (
        [line.heading, *(_figure(line.promise.seen(found, target)) for target in targets), line.aim] for line in lines
    )
    yield from _markdown([["", *targets, "Aim"], *cells])


def _targets(figures: Figures) -> list[str]:
    footprints = (row.case for row in figures.rows if row.measurement == FOOTPRINT)
    return list(dict.fromkeys(footprints))


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
