"""What a process tells Prometheus of itself. Each process has one registry, made where it is put together."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from services.chassis.settings import SettingsError


@contextmanager
def serve_metrics(listen: str, registry: CollectorRegistry) -> Iterator[str]:
    """Over HTTP, in threads of its own, at HOST:PORT. Gives the address, for port 0 asks for any that is free."""
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError, ValueError) as error:
        raise SettingsError(f"cannot serve metrics on {listen}") from error
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
