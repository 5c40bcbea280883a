"""The id of each request: in the header of its response, and in what is logged about it."""

import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from services.chassis.http.asgi import HttpScope, Receive, Send


def new_request_id() -> str:
    """Returns a version 7 UUID: these sort by time, so that neighbours in time are neighbours in an index."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 0x7000 | random >> 68
    low = 1 << 63 | random & (1 << 62) - 1
    return f"{high << 64 | low:032x}"


class RequestIdMiddleware:
    """Gives each request an id, as `request.state.request_id` and in the header of its response."""

    def __init__(self, app: Callable[[HttpScope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> Awaitable[None]:
        request_id = new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id

        def send_with_id(message: MutableMapping[str, Any]) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            return send(message)

        return self._app(scope, receive, send_with_id)
