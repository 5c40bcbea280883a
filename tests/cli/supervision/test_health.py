import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cli.commands.status import describe
from cli.supervision.health import HealthProbe
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log


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
        thread.join(timeout=60)


@pytest.mark.parametrize(
    ("answer", "serves"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False), (b"", False)],
)
def test_http_serves_when_health_is_200(socket_folder: Path, answer: bytes, serves: bool) -> None:
    with http_answering(socket_folder / "model.sock", answer):
        assert HealthProbe("http", str(socket_folder / "model.sock")).is_serving() is serves


@pytest.mark.parametrize(
    ("answer", "answers"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", True), (b"", False)],
)
def test_a_process_that_says_it_does_not_serve_answers_all_the_same(
    socket_folder: Path, answer: bytes, answers: bool
) -> None:
    with http_answering(socket_folder / "model.sock", answer):
        assert HealthProbe("http", str(socket_folder / "model.sock")).answers() is answers


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_process_that_listens_and_says_nothing_does_not_answer(socket_folder: Path, protocol: str) -> None:
    path = socket_folder / "hung.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert not HealthProbe(protocol, str(path)).answers(0.2)  # type: ignore[arg-type]


def test_a_model_whose_work_hangs_is_busy_while_its_server_says_that_all_is_well(socket_folder: Path) -> None:
    path = socket_folder / "model.sock"
    hangs = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve(connection: socket.socket) -> None:
            with connection:
                asked = connection.recv(1000)
                if b"/metrics" in asked:
                    hangs.wait(60)
                elif asked:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        health = {"protocol": "http", "socket": str(path), "work_path": "/metrics"}
        state = {"name": "local-model", "pid": 1, "restarts": 0, "health": health}
        assert describe(state)["health"] == "busy"
        hangs.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_nobody_serves_where_nobody_listens(socket_folder: Path, protocol: str) -> None:
    path = socket_folder / "left.sock"
    assert not HealthProbe(protocol, str(path)).is_serving()  # type: ignore[arg-type]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert not HealthProbe(protocol, str(path)).is_serving()  # type: ignore[arg-type]


async def test_grpc_serves_from_its_start_to_its_end(socket_folder: Path, log: Log) -> None:
    path = socket_folder / "auth.sock"
    health = HealthProbe("grpc", str(path))
    server = RpcServer(f"unix:{path}", [], log)
    await server.start()
    assert await asyncio.to_thread(health.is_serving)
    assert await asyncio.to_thread(health.answers)
    await server.stop(0)
    assert not await asyncio.to_thread(health.is_serving)
