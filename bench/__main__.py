"""`python -m bench`: runs all measurements, or the selected ones, and prints one table."""

import sys
from pathlib import Path

import click

from bench.chats import AnswersWrong
from bench.children import CompilerMissing
from bench.figures import present
from bench.readme import update_if_quiet
from bench.report import Progress
from bench.sections import SECTIONS, Options
from bench.targets import ChargesWrong


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=Options().seconds, show_default=True, help="Seconds for each case.")
@click.option(
    "--in-flight", default=Options().in_flight, show_default=True, help="Concurrent requests on the hot account."
)
@click.option(
    "--rounds", default=Options().rounds, show_default=True, help="Rounds of comparisons; the medians are reported."
)
@click.option("--only", type=click.Choice(list(SECTIONS)), multiple=True, help="Measure this section; repeat for more.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file."
)
@click.option("--write/--no-write", default=True, help="Write the figures into the documents.  [default: write]")
def bench(
    seconds: float, in_flight: int, rounds: int, only: tuple[str, ...], json_file: Path | None, write: bool
) -> None:
    """Measure the service on this machine. All measurements take about twenty-five minutes, the comparison with the
    relay seven, that of agents nine."""
    options = Options(seconds, in_flight, rounds)
    sections = [SECTIONS[name] for name in only or SECTIONS]
    progress = Progress(sys.stderr, steps=sum(section.steps(options) for section in sections))
    rows, said = [], []
    try:
        for section in sections:
            of_section = list(section.measure(options, progress))
            rows += of_section
            if section.verdict is not None:
                said.append(section.verdict(of_section))
    except (AnswersWrong, ChargesWrong, CompilerMissing) as wrong:
        raise click.ClickException(str(wrong)) from None
    finally:
        progress.clear()
    figures = present(rows, said, json_file)
    if write:
        update_if_quiet(figures)


if __name__ == "__main__":
    bench()
