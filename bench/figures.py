"""The figures of a run: printed on the terminal, and written as JSON for `python -m bench.readme`."""

import os
import platform
from pathlib import Path

import click
import msgspec

from bench.measurements.promises import Verdict, verdicts
from bench.report import Row, doubts, table


class Figures(msgspec.Struct, frozen=True):
    machine: dict[str, str | int]
    rows: list[Row]
    promises: list[Verdict]


def present(rows: list[Row], said: list[str], json_file: Path | None) -> Figures:
    click.echo(table(rows))
    if said:
        click.echo("\n" + "\n".join(said))
    if (doubt := doubts(rows)) is not None:
        click.echo(f"\n{doubt}")
    figures = Figures(machine(), rows, list(verdicts(rows)))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    return figures


def machine() -> dict[str, str | int]:
    return {
        "processors": os.cpu_count() or 0,
        "kind": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }
