"""The HTTP server: uvicorn's, but for how it deals with a connection."""

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn

from edge.http.connection import KEEP_ALIVE_S, EdgeProtocol, RefuseAtOnce, refuse_nobody
from edge.http.connection_limit import MOST_CONNECTIONS, ConnectionLimit
from services.chassis.telemetry.log import Log
from services.chassis.timing.clock import SystemClock


class HttpServer(uvicorn.Server):
    def __init__(
        self,
        app: Any,
        drain_s: float,
        stalled_reader_s: float,
        refuse_at_once: RefuseAtOnce = refuse_nobody,
        connections: ConnectionLimit | None = None,
    ) -> None:
        """`refuse_at_once` is asked before the application, and should be quick."""
        manners = {
            "refuse_at_once": staticmethod(refuse_at_once),
            "stalled_reader_s": stalled_reader_s,
            "passed_over": set(),
            "owing": set(),
            "all_connections": connections or ConnectionLimit(MOST_CONNECTIONS, SystemClock(), Log("edge")),
        }
        self._protocol: type[EdgeProtocol] = type("Protocol", (EdgeProtocol,), manners)
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

    def stop_keeping_alive(self) -> None:
        """Answer as before, but let every client know that its connection is not for further requests."""
        self._protocol.is_leaving = True

    def break_off(self) -> None:
        """Wait no longer for what runs: each is told that it ends here."""
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the process: there is more to end than the HTTP server."""
        yield
