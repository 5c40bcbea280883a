"""The lines of some folders that a process runs, written to a file of coverage.py."""

import hashlib
import importlib.util
import marshal
import os
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from coverage import CoverageData

from tests.support.coverage import probes

SHA256_BYTES = 32


class Measurement:
    """Puts probes into the modules of `folders` that are imported after `begin`."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._prefixes = tuple(f"{folder}{os.sep}" for folder in folders)
        self._executed: dict[str, list[bool]] = {}
        self._exec_module = SourceFileLoader.exec_module

    def begin(self) -> None:
        """Takes over the loader that all ways to import end in: Alembic imports migrations by their paths."""

        def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
            if loader.path.startswith(self._prefixes):
                self._import_with_probes(loader.path, module)
            else:
                self._exec_module(loader, module)

        SourceFileLoader.exec_module = exec_module  # type: ignore[assignment, method-assign]

    def end(self) -> None:
        """Leaves further imports alone. Modules that were imported keep their probes."""
        SourceFileLoader.exec_module = self._exec_module  # type: ignore[method-assign]

    def write(self, data_file: Path) -> None:
        """Writes a file of its own beside `data_file`, as each of several test processes does: `coverage combine`."""
        # What no test imports counts as well.
        lines_run: dict[str, list[int]] = {str(path): [] for folder in self._folders for path in folder.rglob("*.py")}
        for path, executed in self._executed.items():
            lines_run[path] = [line for line, ran in enumerate(executed) if ran]
        data = CoverageData(basename=str(data_file), suffix=True)
        data.add_lines(lines_run)
        data.write()

    def _import_with_probes(self, path: str, module: ModuleType) -> None:
        source = Path(path).read_bytes()
        # A module that is imported again, as migrations are, adds to the lines that ran before.
        executed = self._executed.setdefault(path, [False] * (source.count(b"\n") + 2))
        setattr(module, probes.EXECUTED, executed)
        exec(_compile_once(source, path), vars(module))


def _compile_once(source: bytes, path: str) -> CodeType:
    """Compiles a module, or takes what another process compiled from the same text, and with the same probes."""
    version = hashlib.sha256(Path(probes.__file__).read_bytes() + source).digest()
    cached = Path(importlib.util.cache_from_source(path, optimization="probes"))
    if cached.exists() and (content := cached.read_bytes()).startswith(version):
        code: CodeType = marshal.loads(content[SHA256_BYTES:])
        return code
    code = probes.compile_with_probes(source, path)
    cached.parent.mkdir(parents=True, exist_ok=True)
    unfinished = cached.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(version + marshal.dumps(code))
    unfinished.replace(cached)
    return code
