import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.health import Health
from services.chassis.log import Log
from services.chassis.server import Server


@contextmanager
def http_answering(path: Path, answer: bytes) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            # The first connection only looks whether somebody listens.
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    if connection.recv(1000):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(timeout=5)


@pytest.mark.parametrize(
    ("answer", "serves"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False), (b"", False)],
)
def test_http_serves_when_health_is_200(socket_folder: Path, answer: bytes, serves: bool) -> None:
    with http_answering(socket_folder / "model.sock", answer):
        assert Health("http", str(socket_folder / "model.sock")).is_serving() is serves


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_nobody_serves_where_nobody_listens(socket_folder: Path, protocol: str) -> None:
    path = socket_folder / "left.sock"
    assert not Health(protocol, str(path)).is_serving()  # type: ignore[arg-type]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert not Health(protocol, str(path)).is_serving()  # type: ignore[arg-type]


async def test_grpc_serves_from_its_start_to_its_end(socket_folder: Path, log: Log) -> None:
    path = socket_folder / "auth.sock"
    health = Health("grpc", str(path))
    server = Server(f"unix:{path}", [], log)
    await server.start()
    assert await asyncio.to_thread(health.is_serving)
    await server.stop(0)
    assert not await asyncio.to_thread(health.is_serving)
