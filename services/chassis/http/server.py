"""The HTTP server: uvicorn's, with a connection class of its own."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from services.chassis.http.connection import KEEP_ALIVE_S, RefuseAtOnce, RenderRefusal, ServerConnection, refuse_none
from services.chassis.http.connection_limit import ConnectionLimit
from services.chassis.settings import SettingsError

# Of the date header.
DATE_EVERY_S: Final = 1.0


def open_listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from error


class HttpServer(uvicorn.Server):
    def __init__(
        self,
        app: Any,
        connections: ConnectionLimit,
        render_refusal: RenderRefusal,
        *,
        drain_s: float,
        stalled_reader_s: float,
        refuse_at_once: RefuseAtOnce = refuse_none,
        names_under: bytes = b"",
    ) -> None:
        """Calls `refuse_at_once` before the application; it should be quick. Encoded slashes are accepted only in the
        segment of a path after `names_under`, and stay encoded."""
        attributes = {
            "render_refusal": staticmethod(render_refusal),
            "refuse_at_once": staticmethod(refuse_at_once),
            "stalled_reader_s": stalled_reader_s,
            "names_under": names_under,
            "passed_over": set(),
            "owing": set(),
            "all_connections": connections,
        }
        self._exit_asked = asyncio.Event()
        self._protocol: type[ServerConnection] = type("Connection", (ServerConnection,), attributes)
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=self._protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )

    @property
    def should_exit(self) -> bool:
        return self._exit_asked.is_set()

    @should_exit.setter
    def should_exit(self, should_exit: bool) -> None:
        if should_exit:
            self._exit_asked.set()

    async def main_loop(self) -> None:
        """Updates the date header until `should_exit` is set. uvicorn's own loop looks for that ten times a second,
        which wakes an idle process."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit_asked.wait(), DATE_EVERY_S)

    def stop_keeping_alive(self) -> None:
        """Continues to respond, but with `connection: close`."""
        self._protocol.is_leaving = True

    def cancel_all(self) -> None:
        """Cancels all running requests; each sends an error and ends."""
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the process, which has more to end than this."""
        yield
