"""Opens the listening socket of an RPC address, for a process that does not leave that to gRPC."""

import socket
from pathlib import Path
from typing import Final

from services.chassis.settings import SettingsError

# Connections that may wait while the process restarts.
BACKLOG: Final = 1024
LARGEST_PORT: Final = 65535


def listen_for_rpcs(listen: str) -> socket.socket:
    """Listens on `unix:PATH`, in place of what listened there before, or on HOST:PORT."""
    try:
        return _listen_on_path(Path(listen.removeprefix("unix:"))) if listen.startswith("unix:") else _on_port(listen)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot listen on {listen}") from error


def _listen_on_path(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o700)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _on_port(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if int(port) > LARGEST_PORT:
        raise ValueError(port)
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    # As gRPC does, `[::]` takes connections of version 4, too.
    is_dual = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, int(port)), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
