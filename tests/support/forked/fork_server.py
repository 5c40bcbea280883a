"""A process that has imported Legato once, and forks the processes of each service that a test starts.

    python -m tests.support.forked.fork_server

Half of the processor time of a start is imports. Orders come on the socket that is its stdin; when that is closed, it
ends, and its children with it. Neither gRPC nor an event loop is used here: both must begin after the fork.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite
import uvicorn.lifespan.off

import cli.commands.service.up
from tests.support.forked.children import become, end_with_parent
from tests.support.forked.order import LARGEST_ORDER_BYTES, LEGATO, Order
from tests.support.forked.supervised import run_module, supervise

MODULES: Final = ("edge", "services.auth", "services.metering", "services.router")
# Who needs them imports them late, which would happen again after every fork.
NEEDED_LATE: Final = (
    cli.commands.service.up, psycopg, sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.dialects.sqlite.pysqlite,
    uvicorn.lifespan.off,
)  # fmt: skip


def main() -> None:
    orders = socket.socket(fileno=os.dup(0))
    for module in MODULES:
        importlib.import_module(f"{module}.__main__")
        # `supervise` runs it as `python -m` does, which would warn of one that is there.
        del sys.modules[f"{module}.__main__"]
    # Objects that never move to another generation are pages that children go on sharing.
    gc.collect()
    gc.freeze()
    child = _serve(orders)
    if child is not None:
        child()


def _serve(orders: socket.socket) -> Callable[[], None] | None:
    """Returns what a child does; None in this process, when the tests have ended."""
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                pid, told = children.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)
                continue
            received, fds, *_ = socket.recv_fds(orders, LARGEST_ORDER_BYTES, 3)
            if not received:
                return None
            told, output, errors = fds
            order, parent = msgspec.json.decode(received, type=Order), os.getpid()
            pid = os.fork()
            if pid == 0:
                return lambda: _obey(order, parent, {1: output, 2: errors})
            os.close(output)
            os.close(errors)
            os.write(told, b"%d\n" % pid)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = pid, told
            poll.register(pidfd, select.POLLIN)


def _obey(order: Order, parent: int, kept: Mapping[int, int]) -> None:
    end_with_parent(signal.SIGTERM if order.module == LEGATO else signal.SIGKILL, parent)
    os.chdir("/")
    # The name by which it tells people to call it.
    sys.argv[0] = order.module
    main = partial(supervise, order.arguments) if order.module == LEGATO else partial(run_module, order.module)
    become(main, order.environ, kept)


if __name__ == "__main__":
    main()
