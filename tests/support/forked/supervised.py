"""`legato up` in a forked process, and the processes that it starts: they are forked too, rather than import all again.

The supervisor must be their parent, and may not fork itself, since it has threads. So a process without threads is
forked from it before it begins, and forks them twice: what is in between ends at once, and the supervisor adopts.
"""

import asyncio
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import IO, Final, NoReturn, Self

import msgspec

from cli.main import legato
from tests.support.forked.children import adopt_descendants, become, end_with_parent

# As `cli.supervision.processes` writes it.
_COMMAND: Final = [sys.executable, "-P", "-m"]
_LARGEST_BYTES: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 64


class _Start(msgspec.Struct, frozen=True):
    """Fork a process that runs a module. Its output comes with it, and descriptors that shall have these numbers."""

    module: str
    environ: dict[str, str]
    umask: int
    numbers: list[int]


def supervise(arguments: Sequence[str]) -> None:
    """Runs `legato` with these arguments, and the processes of `legato up` as forks."""
    adopt_descendants()
    forks = _Forks.open()
    asyncio.create_subprocess_exec = forks.start  # type: ignore[assignment]
    legato(list(arguments), prog_name="legato")


def run_module(module: str) -> None:
    """Does what `python -m` does."""
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class _Forks:
    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    @classmethod
    def open(cls) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if os.fork() == 0:
            ours.close()
            end_with_parent(signal.SIGKILL, parent)
            _fork_what_is_ordered(theirs)
        theirs.close()
        return cls(ours)

    async def start(
        self,
        *command: str,
        stdin: int,
        stdout: IO[str],
        stderr: IO[str],
        env: dict[str, str],
        pass_fds: Sequence[int],
        umask: int,
        process_group: int,
    ) -> "_SupervisedProcess":
        """Does for the supervisor what `asyncio.create_subprocess_exec` does."""
        *start, module = command
        assert start == _COMMAND
        assert process_group == 0
        order = _Start(module, env, umask, list(pass_fds))
        socket.send_fds(self._orders, [msgspec.json.encode(order)], [stdout.fileno(), *pass_fds])
        return _SupervisedProcess(int(self._orders.recv(_LARGEST_BYTES)))


class _SupervisedProcess:
    """What the supervisor uses of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._on_end)

    async def wait(self) -> int:
        code: int = await asyncio.shield(self._ended)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set_result(self.returncode)


def _fork_what_is_ordered(orders: socket.socket) -> NoReturn:
    while True:
        received, fds, *_ = socket.recv_fds(orders, _LARGEST_BYTES, _MOST_DESCRIPTORS)
        if not received:
            os._exit(0)
        start = msgspec.json.decode(received, type=_Start)
        read_end, write_end = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                _run(start, fds)
            os.write(write_end, b"%d" % pid)
            os._exit(0)
        os.waitpid(between, 0)
        # By now the process is the supervisor's child.
        orders.send(os.read(read_end, 32))
        for fd in (*fds, read_end, write_end):
            os.close(fd)


def _run(start: _Start, fds: Sequence[int]) -> NoReturn:
    os.setpgid(0, 0)
    os.umask(start.umask)
    output, *passed = fds
    kept = {1: output, 2: output, **dict(zip(start.numbers, passed, strict=True))}
    become(partial(run_module, start.module), start.environ, kept)
