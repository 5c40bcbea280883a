"""The load and the provider of a measurement, as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.progress import Progress
from tests.support.child import start_child
from tests.support.service import wait_until

ROOT: Final = Path(__file__).parents[1]


class Provider(NamedTuple):
    base_url: str
    process_id: int


@contextmanager
def started_provider(module_and_arguments: Sequence[str], folder: Path, name: str = "provider") -> Iterator[Provider]:
    """A module that prints its base address."""
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
    """Returns a module's result for an order, both in files: no key belongs in a list of processes. Calls `meanwhile`
    again and again until then."""
    order_file, result_file, output = folder / "order.json", folder / "result.json", folder / "load.log"
    order_file.write_bytes(order)
    load = _start([module, str(order_file), str(result_file)], output)
    while load.poll() is None:
        progress.show()
        meanwhile()
        time.sleep(0.1)
    if load.returncode != 0:
        raise RuntimeError(f"The load did not come to its end:\n{output.read_text()}")
    return result_file.read_bytes()


def printed_address(output: Path) -> str:
    """The address that a program has printed, among whatever else it may say; nothing as long as it has not."""
    lines = output.read_text().split("\n")[:-1] if output.exists() else []
    return next((line for line in lines if line.startswith("http://")), "")


def _start(module_and_arguments: Sequence[str], output: Path) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *module_and_arguments]
    return start_child(command, output, last_signal=signal.SIGTERM, environ=environ)
