"""Prints results, progress and errors on the terminal."""

import csv
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

import click


def show_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def stream_json(values: Iterable[object]) -> None:
    """Prints an array as its values come: they need not fit into memory."""
    separator = "["
    for value in values:
        click.echo(separator + json.dumps(value, ensure_ascii=False), nl=False)
        separator = ",\n"
    click.echo("]" if separator != "[" else "[]")


def stream_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Prints CSV (RFC 4180) as its rows come. What has no value is empty."""
    writer = csv.DictWriter(sys.stdout, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    sys.stdout.flush()


def show_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table, with numeric columns right-aligned."""
    cells = [[_printable(value) for value in row] for row in rows]
    widths = [max(_width(text) for text in column) for column in zip(headers, *cells, strict=True)]
    numeric = [bool(rows) and all(isinstance(row[index], int) for row in rows) for index in range(len(headers))]
    for line in [list(headers), *cells]:
        padded = [
            _pad(text, width, on_the_left=right) for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def show_fields(fields: dict[str, object]) -> None:
    """Prints one thing, a line for each field."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {_printable(value)}".rstrip())


def _pad(text: str, width: int, *, on_the_left: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if on_the_left else text + space


def _width(text: str) -> int:
    """Returns the columns on a terminal: wide letters take two, combining characters none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _printable(value: object) -> str:
    text = "-" if value is None else str(value)
    # Control characters in a name must not reach the terminal.
    return "".join(character if character.isprintable() else "?" for character in text)


WIDTH = 30


class Bar:
    def __init__(self, stream: TextIO | None) -> None:
        """Takes a stream, or None for a stderr that is closed."""
        self._terminal = stream if stream is not None and stream.isatty() else None
        self._shown = ""

    def show(self, what: str, done: int, total: int) -> None:
        if self._terminal is None:
            return
        part = min(1.0, done / total) if total else 1.0
        filled = round(WIDTH * part)
        text = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {round(100 * part):3}% {what}"
        if text != self._shown:
            self._write(text)

    def close(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        """Replaces the line."""
        if self._terminal is not None:
            self._terminal.write(f"\r\x1b[K{text}")
            self._terminal.flush()
            self._shown = text


def open_closed_ones() -> None:
    """Opens closed standard streams on /dev/null, since the next opened file would take their descriptors."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


@contextmanager
def ignoring_closed(stream: TextIO | None) -> Iterator[None]:
    """Ignores write errors on a stream whose reader is gone."""
    try:
        yield
    except OSError:
        if stream is not None:
            # Otherwise the buffer would be flushed again at exit, and fail then.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
