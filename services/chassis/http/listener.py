"""Opens the socket that an HTTP server listens on."""

import socket

from services.chassis.settings import SettingsError


def open_listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from error
