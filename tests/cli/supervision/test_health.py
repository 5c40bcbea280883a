import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cli.commands.service.status import describe
from cli.supervision.health import LATE_S, LEAST_MISSES, HealthProbe, Responsiveness
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log


@contextmanager
def http_answering(path: Path, answer: bytes) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            # The first connection only looks whether a process listens.
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
def test_nothing_serves_where_nothing_listens(socket_folder: Path, protocol: str) -> None:
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


TIMEOUT_S = 3.0
EVERY_S = 3.0


def ticks(first_s: float, *, lateness_s: float = 0.0) -> Iterator[tuple[float, float, float, float]]:
    """Checks without an answer: when each was due, began and ended."""
    due_s = first_s
    while True:
        began_s = due_s + lateness_s
        yield due_s, began_s, began_s + TIMEOUT_S, TIMEOUT_S
        due_s = began_s + TIMEOUT_S + EVERY_S


def answering(at_s: float = 100.0) -> Responsiveness:
    process = Responsiveness(0.0, start_timeout_s=60.0, unresponsive_after_s=20.0)
    process.record_answer(at_s)
    return process


def test_a_process_that_answers_no_more_hangs_after_some_time_and_some_misses() -> None:
    process = answering(at_s=100.0)
    hung_at_s = next(tick[2] for tick in ticks(103.0) if process.record_miss(*tick))
    # Its checks end at 106, 112, 118, 124.
    assert hung_at_s == 124.0
    assert process.silent_s(hung_at_s) == 24.0


def test_few_misses_are_chance_however_long_they_took() -> None:
    process = answering()
    verdicts = [process.record_miss(at_s, at_s, at_s + 1.0, TIMEOUT_S) for at_s in (200.0, 300.0, 400.0, 500.0)]
    assert verdicts == [False] * (LEAST_MISSES - 1) + [True]


def test_one_answer_begins_the_count_again() -> None:
    process = answering()
    for tick, _ in zip(ticks(103.0), range(3), strict=False):
        assert not process.record_miss(*tick)
    process.record_answer(121.0)
    assert not process.record_miss(124.0, 124.0, 127.0, TIMEOUT_S)


@pytest.mark.parametrize("lateness_s", [LATE_S * 1.5, 30.0, 3600.0])
def test_a_machine_that_is_late_itself_says_nothing_of_its_processes(lateness_s: float) -> None:
    """A machine that was suspended or has no processor to give restarts no process."""
    process = answering()
    for tick, _ in zip(ticks(103.0, lateness_s=lateness_s), range(50), strict=False):
        assert not process.record_miss(*tick)


def test_a_check_that_took_longer_than_it_may_says_nothing_either() -> None:
    process = answering()
    for due_s in range(103, 1000, 60):
        assert not process.record_miss(due_s, due_s, due_s + TIMEOUT_S + 40.0, TIMEOUT_S)


def test_after_a_pause_of_the_machine_the_whole_time_is_given_again() -> None:
    process = answering()
    for tick, _ in zip(ticks(103.0), range(3), strict=False):
        process.record_miss(*tick)
    assert not process.record_miss(121.0, 500.0, 503.0, TIMEOUT_S)
    hung_at_s = next(tick[2] for tick in ticks(506.0) if process.record_miss(*tick))
    assert hung_at_s == 527.0


def test_a_process_that_starts_has_the_time_of_a_start() -> None:
    process = Responsiveness(0.0, start_timeout_s=60.0, unresponsive_after_s=20.0)
    assert next(tick[2] for tick in ticks(3.0) if process.record_miss(*tick)) == 60.0


def test_a_process_that_works_does_not_hang_however_long_it_does_not_answer() -> None:
    process = answering(at_s=100.0)
    told = 0
    for tick, _ in zip(ticks(103.0), range(50), strict=False):
        told += process.record_work(tick[2])
    assert told == 1
    assert not process.record_miss(500.0, 500.0, 503.0, TIMEOUT_S)


def test_time_without_a_processor_is_not_held_against_a_process() -> None:
    process = answering(at_s=100.0)
    for tick, number in zip(ticks(103.0), range(50), strict=False):
        # It gets a twentieth of the time.
        assert not process.record_miss(*tick, starved_s=5.7 * (number + 1)) or tick[2] > 400
