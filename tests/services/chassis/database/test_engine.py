import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import open_database
from services.chassis.database.engine import LOG_MOST_BYTES, SILENCE_S, make_engine

# In PostgreSQL's protocol: come in, and ask.
WELCOME = bytes.fromhex("5200000008000000005a0000000549")


def test_server_that_vanished_is_given_up_also_while_its_answer_is_waited_for() -> None:
    """A client that only waits sends nothing, so the kernel has to ask whether the server is still there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        greeting = threading.Thread(target=greet_once, args=[server])
        greeting.start()
        engine = make_engine(f"postgresql://legato@127.0.0.1:{server.getsockname()[1]}/legato?sslmode=disable", "auth")
        seen: dict[str, int] = {}

        @sa.event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
            connection = dialect.connect(*arguments, **options)
            with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as own:
                seen["asks"] = own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                seen["after_s"] = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                seen["gives_up_after_ms"] = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            return connection

        with pytest.raises(sa.exc.OperationalError):
            engine.connect()
        greeting.join()
    assert seen == {"asks": 1, "after_s": SILENCE_S, "gives_up_after_ms": SILENCE_S * 1000}


def greet_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(WELCOME)
        # Whatever it asks is not answered.
        connection.recv(1024)


async def test_log_of_writes_that_grew_while_somebody_read_is_cut_back(tmp_path: Path) -> None:
    database = open_database("auth", "", tmp_path)
    await database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE things (content BLOB)"))
    reading, read = threading.Event(), threading.Event()

    def read_long(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM things").scalar_one()
        reading.set()
        read.wait(60)

    reader = asyncio.create_task(database.read(read_long))
    await asyncio.to_thread(reading.wait, 20)
    await database.write(put(2 * LOG_MOST_BYTES))
    log = tmp_path / "auth.db-wal"
    assert log.stat().st_size > LOG_MOST_BYTES
    read.set()
    await reader

    for _ in range(3):
        await database.write(put(1))
    assert log.stat().st_size <= LOG_MOST_BYTES
    database.close()


def put(size_bytes: int) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.exec_driver_sql("INSERT INTO things VALUES (zeroblob(?))", (size_bytes,))
