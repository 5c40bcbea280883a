"""The sockets of clients: bound here, so that a port in use is reported before anything starts, and held, so that who
connects while an edge restarts waits for it."""

import contextlib
import errno
import socket

import click

from services.chassis.rpc.listening import listen_for_rpcs
from services.chassis.settings import SettingsError

# Connections that may wait while the edges start or restart.
BACKLOG = 2048


class CannotListen(click.ClickException):
    """Says why it failed, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        raise CannotListen(f"{host} is not an address of this machine: choose another with --host") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def listen_for_console(host: str, port: int) -> list[socket.socket]:
    """Listens on `host`; on loopback also at its other address, since `localhost` may mean either."""
    try:
        listeners = [listen(host, port)]
    except CannotListen as error:
        raise CannotListen(error.message.replace("--port", "--console-port")) from None
    if host == "127.0.0.1":
        # Not every machine has it, and the port may be another program's there.
        with contextlib.suppress(CannotListen):
            listeners.append(listen("::1", listeners[0].getsockname()[1]))
    return listeners


def listen_for_programs(address: str) -> socket.socket:
    """Listens where an edge serves gRPC: `unix:PATH` or HOST:PORT."""
    try:
        return listen_for_rpcs(address)
    except SettingsError as error:
        raise CannotListen(f"{error}: choose another with LEGATO_EDGE_RPC_LISTEN, or stop what listens there") from None


def _cannot_listen(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return CannotListen(f"port {port} is in use: choose another with --port, or stop what listens there")
    if error.errno == errno.EADDRNOTAVAIL:
        return CannotListen(f"{host} is not an address of this machine: choose another with --host")
    if error.errno == errno.EACCES:
        return CannotListen(f"port {port} needs root: choose one of 1024 or above with --port")
    return CannotListen(f"cannot listen on {host} port {port}: {error.strerror}")


def base_url(listener: socket.socket, host: str) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
