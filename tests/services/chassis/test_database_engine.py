import socket
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database_engine import SILENCE_S, make_engine

# In PostgreSQL's protocol: come in, and ask.
WELCOME = bytes.fromhex("5200000008000000005a0000000549")


def test_server_that_vanished_is_given_up_also_while_its_answer_is_waited_for() -> None:
    """Whoever only waits sends nothing, so it is the kernel that has to ask whether the server is still there."""
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
