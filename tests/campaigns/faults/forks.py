"""The near end of the zygote: orders processes, and hears of their starts and ends."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Self

import msgspec

from cli.supervision.processes import GRPC_WITHOUT_EVENT_ENGINE
from tests.campaigns.faults.bytecode import with_bytecode
from tests.campaigns.faults.zygote import Order, Told

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
            "tests.campaigns.faults.zygote",
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
