"""`python -m bench.scale`: measures how cost and memory grow with the load and the data."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from bench.chats import AnswersWrong
from bench.children import CompilerMissing
from bench.figures import present
from bench.report import Progress, Row
from bench.scale import capacity, chunks, flatness, months, streams, workers
from bench.targets import ChargesWrong

SECONDS: Final = 3.0


class Section(NamedTuple):
    steps: int
    measure: Callable[[Progress, float], Iterator[Row]]
    verdict: Callable[[list[Row]], str]


SECTIONS: Final = {
    "capacity": Section(capacity.steps(), capacity.measure, capacity.verdict),
    "workers": Section(workers.steps(), workers.measure, workers.verdict),
    "streams": Section(streams.steps(), streams.measure, streams.verdict),
    "chunks": Section(chunks.steps(), chunks.measure, chunks.verdict),
    "flatness": Section(flatness.steps(), flatness.measure, flatness.verdict),
    "months": Section(flatness.steps(), months.measure, months.verdict),
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=SECONDS, show_default=True, help="Seconds for each measurement of a case.")
@click.option("--only", type=click.Choice(list(SECTIONS)), multiple=True, help="Measure this section; repeat for more.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file."
)
def scale(seconds: float, only: tuple[str, ...], json_file: Path | None) -> None:
    """Measure a core's capacity; more processes, streams, chunks, accounts, keys and entries; and closed months."""
    sections = [SECTIONS[name] for name in only or SECTIONS]
    progress = Progress(sys.stderr, steps=sum(section.steps for section in sections))
    rows, said = [], []
    try:
        for section in sections:
            of_section = list(section.measure(progress, seconds))
            rows += of_section
            said.append(section.verdict(of_section))
    except (AnswersWrong, ChargesWrong, CompilerMissing) as wrong:
        raise click.ClickException(str(wrong)) from None
    finally:
        progress.clear()
    present(rows, said, json_file)


if __name__ == "__main__":
    scale()
