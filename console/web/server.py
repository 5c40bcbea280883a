"""The HTTP server of the console, whose refusals are in plain words."""

import socket
from typing import Any, Final

from console.web.capacity import Capacity
from services.chassis.errors import LegatoError
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers
from services.chassis.http.server import HttpServer

STALLED_READER_S: Final = 60.0


def new_server(app: Any, capacity: Capacity, drain_s: float) -> HttpServer:
    return HttpServer(app, capacity.connections, refusal_in_words, drain_s=drain_s, stalled_reader_s=STALLED_READER_S)


def refusal_in_words(error: LegatoError) -> Answer:
    """Renders the refusal of what did not reach a page: under a flood, pages would cost too much."""
    headers: Headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
    return Answer(error.wire.http_status, headers, f"{error.message}\n".encode())


def inherited(fds: list[int]) -> list[socket.socket]:
    return [socket.socket(fileno=fd) for fd in fds]
