"""Child processes that cannot outlive the process that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")


def start_child(
    command: Sequence[str | Path],
    output: Path,
    *,
    last_signal: signal.Signals,
    user_id: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """`last_signal` is what the child gets when this process dies, however it dies. Call it from the main thread."""
    launch = [sys.executable, "-I", "-S", str(LAUNCHER), str(int(last_signal)), str(os.getpid())]
    user = str(-1 if user_id is None else user_id)
    with output.open("ab") as file:
        return subprocess.Popen(
            [*launch, user, *map(str, command)], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ
        )
