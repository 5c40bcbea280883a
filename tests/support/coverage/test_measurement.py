"""What is measured and what coverage.py makes of it, with the settings of this repository."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import coverage
import coverage.cmdline
import pytest

from tests.support.coverage.measurement import Measurement

SETTINGS = Path(__file__).parents[3] / "pyproject.toml"
# Kinds of statements that people write; all lines run, or are excluded.
EVERYTHING = '''
"""Has a line of each kind."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
    )

SQUARES = [
    number * number
    for number in range(3)
    if number
]


class Greets(Protocol):
    """Has a docstring and a body that nobody runs."""

    name: str

    def greet(self) -> str: ...

    def leave(self) -> str:
        raise NotImplementedError


@functools.cache
@functools.lru_cache(
    maxsize=1,
)
def kind(
    value: object,
) -> str:
    """Has all ways through it taken."""
    global last
    last = value
    match value:
        case 1 | 2:
            return "few"
        case str() if (
            value
        ):
            return "text"
    try:
        for _ in range(1):
            continue
        else:
            int("x")
    except (
        ValueError
    ):
        pass
    finally:
        while True:
            break
    with open("/dev/null") as nothing, (
        open("/dev/null")
    ):
        nothing.read()
    if value: return "several"
    elif value is None: return "none"
    else:
        return "zero"


async def answer():
    async with lock:
        return [item async for item in items]


def count():
    received = yield 1
    del received
    assert lambda: (
        1
    )


for value in (1, "a", 3, None, 0):
    kind(value)
list(count())

if __name__ == "__main__":
    import sys

    sys.exit(1)
'''


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    folder = tmp_path / "product"
    folder.mkdir()
    return folder


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    return tmp_path / ".coverage"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def import_from(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(product: Path, data_file: Path, *modules: Path, calls: str = "") -> None:
    """Imports modules and calls a function of theirs, as one test process does."""
    measurement = Measurement([product])
    measurement.begin()
    try:
        for path in modules:
            module = import_from(path)
            if calls:
                getattr(module, calls)()
    finally:
        measurement.end()
    measurement.write(data_file)


def run_coverage(command: str, data_file: Path, *arguments: str) -> int | None:
    return coverage.cmdline.main([command, f"--rcfile={SETTINGS}", f"--data-file={data_file}", *arguments])


def missing_lines(data_file: Path, path: Path) -> list[int]:
    assert run_coverage("combine", data_file, str(data_file.parent)) == 0
    report = coverage.Coverage(data_file=str(data_file), config_file=str(SETTINGS))
    report.load()
    return report.analysis2(str(path))[3]


def test_a_line_that_did_not_run_is_missing(product: Path, data_file: Path) -> None:
    path = write(product / "module.py", "def used():", "    return 1", "", "def unused():", "    return 2")
    measure(product, data_file, path, calls="used")
    assert missing_lines(data_file, path) == [5]


def test_every_line_that_counts_can_be_reached_and_excluded_lines_are_not_missing(
    product: Path, data_file: Path
) -> None:
    path = write(product / "everything.py", EVERYTHING)
    measure(product, data_file, path)
    text = path.read_text().splitlines()
    assert [text[line - 1].strip() for line in missing_lines(data_file, path)] == [
        # The one function that is not called.
        "async with lock:",
        "return [item async for item in items]",
    ]


def test_what_two_processes_ran_is_added_up(product: Path, data_file: Path) -> None:
    path = write(product / "module.py", "def one():", "    return 1", "def two():", "    return 2")
    measure(product, data_file, path, calls="one")
    measure(product, data_file, path, calls="two")
    assert missing_lines(data_file, path) == []


def test_a_module_that_nobody_imports_is_missing_as_a_whole(product: Path, data_file: Path) -> None:
    path = write(product / "unused.py", "A = 1", "B = 2")
    measure(product, data_file)
    assert missing_lines(data_file, path) == [1, 2]


def test_other_folders_are_imported_as_ever(product: Path, data_file: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "product_of_others.py", "A = sorted(globals())")
    measurement = Measurement([product])
    measurement.begin()
    module = import_from(other)
    measurement.end()
    assert module.A == import_from(other).A


def test_a_module_that_changed_is_compiled_anew(product: Path, data_file: Path) -> None:
    path = write(product / "module.py", "A = 1")
    measure(product, data_file, path)
    write(path, "A = 2", "", "B = 3")
    measure(product, data_file, path)
    assert missing_lines(data_file, path) == []


@pytest.mark.parametrize(("lines_unused", "status"), [(2, 0), (3, 2)])
def test_less_than_nine_lines_of_ten_are_too_few(
    product: Path, data_file: Path, lines_unused: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    used = [f"A{number} = {number}" for number in range(19 - lines_unused)]
    unused = [f"    B{number} = {number}" for number in range(lines_unused)]
    path = write(product / "module.py", *used, "if not A0 + 1:", *unused)
    measure(product, data_file, path)
    assert run_coverage("combine", data_file, str(data_file.parent)) == 0
    assert run_coverage("report", data_file) == status
    percent = 100 * (20 - lines_unused) / 20
    assert f"{percent:.1f}%" in capsys.readouterr().out
