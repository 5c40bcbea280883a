"""The mock upstream and the load, in C: compiled on first use, and again when their sources have changed."""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).with_name("wire")
FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror")

# A chunk of the mock upstream is one token to it; by our count its five characters are more, though never that many.
TOKENS_A_CHUNK: Final = 5


class CompilerMissing(Exception):
    def __init__(self, compiler: str) -> None:
        super().__init__(f"The load and the mock upstream are C: install a compiler ({compiler} was not found).")


def program(name: str) -> Path:
    """`upstream` or `load`."""
    folder = Path(sys.prefix) / "bench"
    folder.mkdir(exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise CompilerMissing(compiler[0])
    compiled = folder / f"{name}-{_digest(compiler)}"
    with (folder / "lock").open("w") as lock:
        # Test processes take turns.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not compiled.exists():
            unfinished = compiled.with_suffix(".unfinished")
            subprocess.run([*compiler, *FLAGS, "-o", unfinished, SOURCES / f"{name}.c"], check=True)
            unfinished.rename(compiled)
    return compiled


def _digest(compiler: list[str]) -> str:
    digest = hashlib.sha256(shlex.join([*compiler, *FLAGS]).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
