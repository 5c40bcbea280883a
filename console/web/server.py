"""The HTTP server: uvicorn's, as it is."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

KEEP_ALIVE_S: Final = 30
# Above it, further requests get 503.
MOST_CONNECTIONS: Final = 1000


class ConsoleServer(uvicorn.Server):
    def __init__(self, app: Any, drain_s: float, trusted_proxies: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=[given.strip() for given in trusted_proxies.split(",") if given.strip()],
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the process, which has more to end than this."""
        yield


def inherited(fds: list[int]) -> list[socket.socket]:
    return [socket.socket(fileno=fd) for fd in fds]
