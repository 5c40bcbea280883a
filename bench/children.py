"""Starts child processes, and compiles the load generator and the mock upstream."""

import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.report import Progress
from tests.support.servers.child import start_child
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[1]


class Provider(NamedTuple):
    base_url: str
    process_id: int


@contextmanager
def started_provider(module_and_arguments: Sequence[str], folder: Path, name: str = "provider") -> Iterator[Provider]:
    """Starts a module that prints its base address, and yields it while it runs."""
    output = folder / f"{name}.log"
    process = _start(module_and_arguments, output)
    try:
        yield Provider(wait_until(lambda: printed_address(output)), process.pid)
    finally:
        process.terminate()
        process.wait()


def result_of(
    module: str, order: bytes, folder: Path, progress: Progress, meanwhile: Callable[[], None] = lambda: None
) -> bytes:
    """Runs a module on an order and returns its result. Both are files, since a command line would show API keys in the
    process list. Calls `meanwhile` repeatedly until the module has finished."""
    order_file, result_file, output = folder / "order.json", folder / "result.json", folder / "load.log"
    order_file.write_bytes(order)
    load = _start([module, str(order_file), str(result_file)], output)
    while load.poll() is None:
        progress.show()
        meanwhile()
        time.sleep(0.1)
    if load.returncode != 0:
        raise RuntimeError(f"The load generator failed:\n{output.read_text()}")
    return result_file.read_bytes()


def printed_address(output: Path) -> str:
    """Returns the address that a program printed among its other output; empty if it has not yet."""
    lines = output.read_text().split("\n")[:-1] if output.exists() else []
    return next((line for line in lines if line.startswith("http://")), "")


def _start(module_and_arguments: Sequence[str], output: Path) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *module_and_arguments]
    return start_child(command, output, last_signal=signal.SIGTERM, environ=environ)


SOURCES: Final = Path(__file__).with_name("wire")
FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror")

# The mock upstream reports one token per chunk. Our count of the chunk's five characters is higher, but never this
# high.
TOKENS_A_CHUNK: Final = 5


class CompilerMissing(Exception):
    def __init__(self, compiler: str) -> None:
        super().__init__(f"The load and the mock upstream are C: install a compiler ({compiler} was not found).")


def program(name: str) -> Path:
    """Compiles `upstream` or `load`."""
    folder = Path(sys.prefix) / "bench"
    folder.mkdir(exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise CompilerMissing(compiler[0])
    compiled = folder / f"{name}-{_digest(compiler)}"
    with (folder / "lock").open("w") as lock:
        # Tests run in several processes, and compile one at a time.
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
