"""A TCP proxy that breaks connections as networks do, while it runs and as it is told.

    async with FaultProxy("unix:/run/auth.sock") as proxy:
        ... connect to proxy.address ...
        proxy.set(STALL)
        proxy.set(Delay(0.5, jitter_s=0.2), "down")
        proxy.heal()

A fault holds for all connections, those to come included, until another takes its place; `connections` are there to be
told one by one. "up" is from the client to the target, "down" is back.
"""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, Self

Direction = Literal["up", "down"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("up", "down")


class Fault:
    """Nothing is wrong."""


class Cut(Fault):
    """The connection is reset, and so is every new one."""


class Stall(Fault):
    """Whatever comes is swallowed, without an error. A connection that has lost something is never of use again, since
    what comes later does not follow on what came before; connections that are made after the fault are well."""


@dataclass(frozen=True)
class Delay(Fault):
    """Everything arrives, late and in order."""

    delay_s: float
    # Up to so much more, anew for each piece.
    jitter_s: float = 0.0


PASS: Final = Fault()
CUT: Final = Cut()
STALL: Final = Stall()


class Connection:
    def __init__(self, faults: dict[Direction, Fault]) -> None:
        self._faults = faults.copy()
        self._writers: list[asyncio.StreamWriter] = []

    def set(self, fault: Fault, *directions: Direction) -> None:
        for direction in directions or DIRECTIONS:
            self._faults[direction] = fault
        if isinstance(fault, Cut):
            self.reset()

    def reset(self) -> None:
        for writer in self._writers:
            reset(writer)

    async def run(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        target: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Until both ends have said all they had to say, or either has reset the connection."""
        self._writers = [client[1], target[1]]
        ways = [
            asyncio.create_task(self._pass_on(client[0], target[1], "up")),
            asyncio.create_task(self._pass_on(target[0], client[1], "down")),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for way in ways:
                way.cancel()
            try:
                outcomes = await asyncio.gather(*ways, return_exceptions=True)
                if any(isinstance(outcome, ConnectionError) for outcome in outcomes):
                    self.reset()
            finally:
                for writer in self._writers:
                    writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(_deliver(due, writer))
        loop, due_at_s, is_lost, has_ended = asyncio.get_running_loop(), 0.0, False, False
        try:
            while not has_ended:
                piece = await reader.read(65536)
                has_ended = not piece
                fault = self._faults[direction]
                is_lost |= isinstance(fault, Stall)
                if isinstance(fault, Delay):
                    due_at_s = max(due_at_s, loop.time() + fault.delay_s + random.uniform(0, fault.jitter_s))
                if not is_lost:
                    due.put_nowait((due_at_s, piece))
            # Where something was swallowed, the other end does not learn that this one is gone.
            await (asyncio.Event().wait() if is_lost else delivering)
        finally:
            delivering.cancel()


async def _deliver(due: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
    """An empty piece is the end."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while True:
            due_at_s, piece = await due.get()
            await asyncio.sleep(due_at_s - loop.time())
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    connected = writer.get_extra_info("socket")
    if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class FaultProxy:
    def __init__(self, target: str) -> None:
        """`target` is unix:PATH or HOST:PORT. It is connected to anew for each connection."""
        self._target = target
        self._faults: dict[Direction, Fault] = dict.fromkeys(DIRECTIONS, PASS)
        self._running: set[asyncio.Task[None]] = set()
        self._opened: list[asyncio.StreamWriter] = []
        self.connections: set[Connection] = set()
        self.address = ""

    def set(self, fault: Fault, *directions: Direction) -> None:
        """Sets it both ways unless some are named."""
        for direction in directions or DIRECTIONS:
            self._faults[direction] = fault
        for connection in self.connections.copy():
            connection.set(fault, *directions)

    def heal(self) -> None:
        self.set(PASS)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._server.close()
        # A connection that was let in just before is let in by now.
        await asyncio.sleep(0.01)
        for task in self._running.copy():
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        # What is closed with something left to write stays open until it is read, which may be never.
        for writer in self._opened:
            writer.transport.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine: what is cancelled before it begins closes nothing."""
        self._opened.append(writer)
        task = asyncio.create_task(self._connect(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._faults)
        self.connections.add(connection)
        try:
            if any(isinstance(fault, Cut) for fault in self._faults.values()):
                reset(writer)
                return
            target = await self._open_target()
            self._opened.append(target[1])
            await connection.run((reader, writer), target)
        except OSError:
            # Nothing listens at the target.
            reset(writer)
        finally:
            self.connections.discard(connection)

    async def _open_target(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.startswith("unix:"):
            return await asyncio.open_unix_connection(self._target.removeprefix("unix:"))
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))
