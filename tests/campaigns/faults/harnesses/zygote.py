"""A process that has imported everything and forks the services: one that was killed is back in some milliseconds.

Orders come as lines of JSON on stdin; each start and each end is told as a line on stdout. When stdin ends, everything
ends. Neither gRPC nor an event loop is opened here: both must begin after the fork.
"""

import asyncio
import atexit
import ctypes
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, NoReturn, Self

import msgspec
import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import uvicorn.lifespan.off

import edge.__main__
import services.auth.__main__
import services.metering.__main__
import services.router.__main__
from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE
from services.auth.service import MIGRATIONS as AUTH_MIGRATIONS
from services.chassis.database.database import Database
from services.chassis.process.run import run
from services.metering.service import MIGRATIONS as METERING_MIGRATIONS
from tests.campaigns.faults.bugs import BUGS, MISFORTUNES


@cache
def with_bytecode() -> dict[str, str]:
    """Variables for such a process."""
    if not sys.dont_write_bytecode:
        return {}
    folder = tempfile.mkdtemp(prefix="lg-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


PR_SET_PDEATHSIG = 1

MAINS: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
    "auth": services.auth.__main__.main,
    "edge": edge.__main__.main,
    "metering": services.metering.__main__.main,
    "router": services.router.__main__.main,
}
# Those who need them import them late, which would happen again after every fork.
NEEDED_LATE = (psycopg, sqlalchemy.dialects.postgresql.psycopg, uvicorn.lifespan.off)


class Order(msgspec.Struct, frozen=True):
    """Start one process."""

    name: str
    service: str
    environ: dict[str, str]
    output: str
    # A listening socket that it inherits.
    keep_fd: int | None = None
    # Seeded mistakes and misfortunes to make it with, by name.
    changes: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True):
    """`exit_code` is None for a process that was started; it is negative for one that was killed by a signal."""

    name: str
    pid: int
    exit_code: int | None = None


class Zygote:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._pid = os.getpid()
        self._names: dict[int, tuple[str, int]] = {}
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def serve(self) -> None:
        unread = b""
        while True:
            for fd, _ in self._poll.poll():
                if fd != 0:
                    self._bury(fd)
                    continue
                received = os.read(0, 65536)
                if not received:
                    return
                *lines, unread = (unread + received).split(b"\n")
                for line in lines:
                    self._start(msgspec.json.decode(line, type=Order))

    def end_all(self) -> None:
        for _, pid in self._names.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _start(self, order: Order) -> None:
        if order.service not in MAINS:
            # Payments, which few harnesses have, and whose library takes long to import.
            MAINS[order.service] = importlib.import_module(f"services.{order.service}.__main__").main
        pid = os.fork()
        if pid == 0:
            self._become(order)
        pidfd = os.pidfd_open(pid)
        self._names[pidfd] = (order.name, pid)
        self._poll.register(pidfd, select.POLLIN)
        _tell(Told(order.name, pid))

    def _bury(self, pidfd: int) -> None:
        name, pid = self._names.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _tell(Told(name, pid, os.waitstatus_to_exitcode(status)))

    def _become(self, order: Order) -> NoReturn:
        exit_code: Any = 1
        try:
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                os._exit(1)
            _redirect(order)
            os.environ.clear()
            os.environ.update(order.environ)
            for name in order.changes:
                (BUGS | MISFORTUNES)[name].apply()
            run(order.service, MAINS[order.service])
            exit_code = 0
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
            if isinstance(end.code, str):
                sys.stderr.write(f"{end.code}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(exit_code)


def _redirect(order: Order) -> None:
    """Its own output, and none of the descriptors of the zygote but the one it is given."""
    output = os.open(order.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, replacement in ((0, nothing), (1, output), (2, output)):
        os.dup2(replacement, fd)
    kept = 2 if order.keep_fd is None else order.keep_fd
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)


def _tell(told: Told) -> None:
    os.write(1, msgspec.json.encode(told) + b"\n")


def warm_up() -> None:
    """Does once what every process does at its start: it imports much."""
    for name, migrations in (("auth", AUTH_MIGRATIONS), ("metering", METERING_MIGRATIONS)):
        database = Database("sqlite://", name)
        database.migrate(migrations)
        database.close()


def main() -> None:
    zygote = Zygote()
    warm_up()
    # Objects that never move to another generation are pages that children go on sharing.
    gc.collect()
    gc.freeze()
    try:
        zygote.serve()
    finally:
        zygote.end_all()


if __name__ == "__main__":
    main()


# More than there are harnesses at any time. A process that runs cannot be handed another socket: all are made before.
LISTENERS = 16


class Forks:
    def __init__(self) -> None:
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(LISTENERS)]
        self._hearers: dict[str, Callable[[Told], None]] = {}

    async def __aenter__(self) -> Self:
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.campaigns.faults.harnesses.zygote",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[listener.fileno() for listener in self._listeners],
            env={**GRPC_WITHOUT_EVENT_ENGINE, **os.environ, **with_bytecode()},
            # It ends when its stdin does; Ctrl-C is for us.
            start_new_session=True,
        )
        self._hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Ends every process."""
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        await self._zygote.wait()
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    @property
    def is_gone(self) -> bool:
        """Ended, and all processes with it."""
        return self._hearing.done()

    def borrow_listener(self) -> socket.socket:
        return self._listeners.pop()

    def give_back(self, listener: socket.socket) -> None:
        self._listeners.append(listener)

    def order(self, order: Order, hearer: Callable[[Told], None]) -> None:
        """`hearer` is told when the process has started, and when it has ended."""
        self._hearers[order.name] = hearer
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(msgspec.json.encode(order) + b"\n")

    async def _hear(self) -> None:
        assert self._zygote.stdout is not None
        while line := await self._zygote.stdout.readline():
            told = msgspec.json.decode(line, type=Told)
            self._hearers[told.name](told)
