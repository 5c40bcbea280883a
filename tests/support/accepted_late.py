"""Closes connections that asyncio forgets.

An asyncio server accepts a connection in one turn of the event loop, and makes a transport of it in the next. If the
server is closed in between, making the transport fails; no caller hears of it, and the socket is not closed
(https://github.com/python/cpython/issues/109564). The garbage collector finds it later, and warns in the middle of
another test.
"""

import asyncio
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any, Final

_accept: Final[Any] = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]


async def accept_unless_closed(
    loop: BaseSelectorEventLoop,
    protocol_factory: Any,
    connection: socket.socket,
    extra: Any,
    sslcontext: Any = None,
    server: asyncio.Server | None = None,
    *timeouts_s: float,
) -> None:
    """Does as `BaseSelectorEventLoop._accept_connection2`, in whose place it is put."""
    if server is not None and not server.sockets:
        connection.close()
        return
    await _accept(loop, protocol_factory, connection, extra, sslcontext, server, *timeouts_s)
