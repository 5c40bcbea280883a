"""`python -m bench`: every measurement that there is, in one table."""

import json
import os
import platform
import sys
from pathlib import Path

import click
import msgspec

from bench import cancellation, disk_sync, hot_account, journal, overload, slow_readers
from bench.progress import Progress
from bench.report import doubts, table

STEPS = 1 + len(journal.CASES) + len(hot_account.CASES) + overload.STEPS + cancellation.STEPS + slow_readers.STEPS
VERDICTS = (overload.verdict, cancellation.verdict, slow_readers.verdict)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=5.0, show_default=True, help="How long each case is measured, after its warm-up.")
@click.option("--in-flight", default=64, show_default=True, help="How many requests run at once.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there too."
)
def bench(seconds: float, in_flight: int, json_file: Path | None) -> None:
    """Measure the service on this machine."""
    progress = Progress(sys.stderr, steps=STEPS)
    try:
        rows = [
            *disk_sync.measure(progress),
            *journal.measure(progress),
            *hot_account.measure(seconds, in_flight, progress),
            *overload.measure(seconds, progress),
            *cancellation.measure(seconds, progress),
            *slow_readers.measure(progress),
        ]
    except hot_account.BooksWrong as wrong:
        raise click.ClickException(str(wrong)) from None
    finally:
        progress.clear()
    machine = {"processors": os.cpu_count(), "kind": platform.machine(), "python": platform.python_version()}
    click.echo(table(rows))
    click.echo("\n" + "\n".join(verdict(rows) for verdict in VERDICTS))
    if (doubt := doubts(rows)) is not None:
        click.echo(f"\n{doubt}")
    if json_file is not None:
        figures = {"machine": machine, "rows": msgspec.to_builtins(rows)}
        json_file.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    bench()
