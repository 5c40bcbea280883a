"""Child processes that cannot outlive the process that started them."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1


def start_child(
    command: Sequence[str | Path],
    output: Path,
    *,
    last_signal: signal.Signals,
    user_id: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """`last_signal` is what the child gets when this process dies, however it dies. Call it from the main thread."""
    with output.open("ab") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/", user=user_id, group=user_id,
            extra_groups=None if user_id is None else [], env=environ, preexec_fn=_die_with_parent(last_signal),
        )  # fmt: skip


def _die_with_parent(last_signal: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        # Changing the user clears this setting; subprocess has done that by now.
        prctl(PR_SET_PDEATHSIG, int(last_signal))
        if os.getppid() != parent:
            os._exit(1)

    return in_child
