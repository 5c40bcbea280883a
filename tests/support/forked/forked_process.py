"""Processes of Legato as forks of one that has imported it (see `fork_server.py`), for tests of what they serve."""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self

import msgspec

from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE
from tests.support.forked.order import LEGATO, Order

REPOSITORY = Path(__file__).parents[3]


class ForkedProcess:
    """Has what tests use of `subprocess.Popen`."""

    def __init__(self, told: int) -> None:
        self._told = told
        self._unread = b""
        self.returncode: int | None = None
        pid = self._line(None)
        assert pid is not None, "the fork server has ended"
        self.pid = pid

    @classmethod
    def start_legato(cls, arguments: Sequence[str], environ: Mapping[str, str], *, stdout: int, stderr: int) -> Self:
        """Starts the command with these arguments, mostly `legato up`, whose processes are forks too."""
        return cls._start(Order(LEGATO, list(arguments), dict(environ)), stdout, stderr)

    @classmethod
    def start_module(cls, module: str, environ: Mapping[str, str], output: Path) -> Self:
        """Starts what `python -m` starts, and appends what it says to a file. It is killed when this process ends."""
        with output.open("ab") as file:
            return cls._start(Order(module, [], dict(environ)), file.fileno(), file.fileno())

    @classmethod
    def _start(cls, order: Order, stdout: int, stderr: int) -> Self:
        read_end, write_end = os.pipe()
        socket.send_fds(_orders(), [msgspec.json.encode(order)], [write_end, stdout, stderr])
        os.close(write_end)
        return cls(read_end)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float) -> int:
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, timeout_s: float) -> int | None:
        if self.returncode is None:
            self.returncode = self._line(timeout_s)
            if self.returncode is not None:
                os.close(self._told)
        return self.returncode

    def _line(self, timeout_s: float | None) -> int | None:
        """Reads a number that comes within this time, None for any; None if there is none."""
        while b"\n" not in self._unread:
            if not select.select([self._told], [], [], timeout_s)[0]:
                return None
            received = os.read(self._told, 64)
            assert received, "the fork server has ended"
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return int(line)


@cache
def _orders() -> socket.socket:
    """Starts the server of this test process. It ends when the other end of its socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked.fork_server"],
        stdin=theirs.fileno(),
        cwd=REPOSITORY,
        env={**GRPC_WITHOUT_EVENT_ENGINE, **environ},
        # Ctrl-C is for us.
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
