"""The files of the product that a running process runs through while something happens."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGUSR2

from tests.support.service import wait_until

ROOT = Path(__file__).parents[2]


def tracing_environ(folder: Path) -> dict[str, str]:
    """Returns the variables with which processes can be traced, at no cost until they are."""
    return {"PYTHONPATH": str(Path(__file__).parent / "traced"), "PYTHON_TRACE_FOLDER": str(folder)}


@contextmanager
def traced_files(folder: Path, process_ids: list[int]) -> Iterator[set[str]]:
    """Yields a set, which has the files once the block is left."""
    _toggle(folder, process_ids, "begun")
    files: set[str] = set()
    yield files
    for text in _toggle(folder, process_ids, "files"):
        names = [Path(name) for name in text.splitlines()]
        files |= {str(name.relative_to(ROOT)) for name in names if name.is_relative_to(ROOT)}


def _toggle(folder: Path, process_ids: list[int], kind: str) -> list[str]:
    for process_id in process_ids:
        os.kill(process_id, SIGUSR2)
    paths = [folder / f"{process_id}.{kind}" for process_id in process_ids]
    wait_until(lambda: all(path.exists() for path in paths))
    texts = [path.read_text() for path in paths]
    for path in paths:
        path.unlink()
    return texts
