"""Breaks the connections to a PostgreSQL server that hangs, so that callers need not wait until it is killed.

The kernel of a stopped server still confirms all that it is sent, so that no timeout of TCP passes, and a timeout of a
statement is the server's own. So where a transaction takes long, a new connection is opened, which any server that is
alive answers. A transaction that is long for another reason goes on.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from typing import Any, Final
from weakref import WeakSet

import sqlalchemy as sa

from services.chassis.database.engine import CONNECT_TIMEOUT_S

# Transactions that run for longer are few.
LONG_S: Final = 1.0


class HangWatch:
    def __init__(self, engine: sa.Engine) -> None:
        """Watches the connections of an engine; does nothing for SQLite."""
        self._is_used = engine.dialect.name == "postgresql"
        self._engine = engine
        self._connections: WeakSet[Any] = WeakSet()
        # When running transactions began, by their threads.
        self.began_s: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._probe: threading.Thread | None = None
        if self._is_used:
            sa.event.listen(engine, "connect", lambda connection, record: self._connections.add(connection))

    def start(self) -> None:
        """Begins to look whether transactions take long; it ends by itself when none runs."""
        if self._timer is None and self._is_used:
            self._timer = asyncio.get_running_loop().call_later(LONG_S, self._look)

    def stop(self) -> None:
        self._is_used = False
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        running = [*self.began_s.values()]
        if not running:
            return
        is_probing = self._probe is not None and self._probe.is_alive()
        if min(running) < time.monotonic() - LONG_S and not is_probing:
            # A thread of its own: all others of the database may wait for the server.
            self._probe = threading.Thread(target=self._break_if_silent, name="database-probe", daemon=True)
            self._probe.start()
        self.start()

    def _break_if_silent(self) -> None:
        hanging = [*self._connections]
        # Not from the pool: all of its connections may be in use.
        arguments, named = self._engine.dialect.create_connect_args(self._engine.url)
        driver: Any = self._engine.dialect.loaded_dbapi
        try:
            driver.connect(*arguments, **{**named, "connect_timeout": CONNECT_TIMEOUT_S}).close()
        except driver.errors.ConnectionTimeout:
            for each in hanging:
                _break(each)
        except driver.Error:
            # It refuses new connections, and so is alive; or it is gone, which its connections tell by themselves.
            return


def _break(connection: Any) -> None:
    """Ends a connection while another thread waits for it, and finds that it is lost."""
    # It may be closed meanwhile.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
