"""The console, served on a free port by a thread of the test's own process, with the services behind it."""

import asyncio
import contextlib
import gzip
import http.client
import io
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from console.app import ConsoleApp, new_server
from console.process_status import ProcessAddress
from console.services import Services
from console.web.assets import Assets
from console.web.capacity import Capacity
from console.web.metrics import PageMetrics
from console.web.protection import Protection
from console.web.rendering import Pages
from console.web.visit import Console
from services.chassis.database.clock import NOW_US as NOW_EXPRESSIONS
from services.chassis.http.addresses import Addresses
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import new_registry
from tests.console.backends import Backends
from tests.console.clock import NOW_US, StandingClock
from tests.console.processes import PROCESSES, ProcessMetrics
from tests.console.servers import new_server as new_backend
from tests.console.servers import new_spend_limits

API_URL = "http://127.0.0.1:8080/v1"
COOKIE = "__Host-legato"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    cookies: tuple[str, ...]
    text: str


class ConsoleHarness:
    def __init__(self, folder: Path, *, takes_payments: bool = True) -> None:
        self._takes_payments = takes_payments
        # The databases' time stands still, as that of the console does.
        self._time = mock.patch.dict(NOW_EXPRESSIONS, sqlite=str(NOW_US))
        self._time.start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.origin = f"http://localhost:{self.port}"
        self.backends = Backends(folder, self.origin)
        self.auth, self.metering, self.payments = (
            self.backends.auth, self.backends.metering, self.backends.payments,
        )  # fmt: skip
        self.router, self.grounding = self.backends.router, self.backends.grounding
        self.log_stream = io.StringIO()
        self._folder = folder
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        # A busy machine may need longer than people wait: a page would say that a service or a process does not answer.
        self._patience = contextlib.ExitStack()

    def start(self) -> None:
        timeouts = {
            "process_status.READ_WITHIN_S": 60.0,
            "services.READ_TIMEOUT_S": 60.0,
            "account.account_notices.WITHIN_S": 60.0,
            "pages.account.credit.AUDIT_WAIT_MS": 60_000,
            "pages.account.credit.AUDIT_TIMEOUT_S": 120.0,
        }
        for name, timeout in timeouts.items():
            self._patience.enter_context(mock.patch(f"console.{name}", timeout))
        self._thread.start()
        assert self._started.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._patience.close()
        self._time.stop()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        log = Log("console", self.log_stream, debug=True)
        servers = []
        await self.backends.start(self._folder, log)
        services_of = {
            each: new_backend(each, self.backends, log) for each in ("auth", "metering", "router", "payments")
        }
        for name, server in {**services_of, "spend-limits": new_spend_limits(self.backends, log)}.items():
            server.add_insecure_port(f"unix:{self._folder}/{name}.sock")
            await server.start()
            servers.append(server)
        payments_address = f"unix:{self._folder}/payments.sock" if self._takes_payments else ""
        services = Services(lambda service: f"unix:{self._folder}/{service}.sock", None, log, payments_address)
        await services.start()
        operations = contextlib.AsyncExitStack()
        for name in PROCESSES:
            await operations.enter_async_context(self._serve_metrics(name, log))
        console = Console(
            services,
            Pages(Assets()),
            Protection([self.origin], API_URL),
            API_URL,
            StandingClock(),
            log,
            serves_operators=True,
            processes=tuple(ProcessAddress(name, f"unix:{self._folder}/{name}-http.sock") for name in PROCESSES),
        )
        self.console = console
        self.capacity = Capacity(1000, Addresses(), console.clock, log)
        http_server = new_server(ConsoleApp(console, PageMetrics(new_registry()), self.capacity), self.capacity, 1)
        serving = asyncio.create_task(http_server.serve(sockets=[self._listener]))
        self._started.set()
        await self._stop.wait()
        http_server.should_exit = True
        await serving
        await services.close()
        await operations.aclose()
        for server in servers:
            await server.stop(None)
        await self.backends.close()

    def _serve_metrics(self, name: str, log: Log) -> contextlib.AbstractAsyncContextManager[str]:
        metrics: Any = ProcessMetrics(lambda: self.backends.processes.metrics[name])
        return serve_operations(
            f"unix:{self._folder}/{name}-http.sock", metrics, log, lambda: self.backends.processes.missing.get(name, [])
        )

    def get(self, path: str, session: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", path, session, headers, None)

    def get_bytes(self, path: str, session: str) -> bytes:
        """Downloads a file."""
        status, _headers, _cookies, content = self._exchange("GET", path, session, None, None)
        assert status == 200
        return content

    def post(
        self,
        path: str,
        fields: Mapping[str, str | list[str]] | None = None,
        session: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        is_ours: bool = True,
    ) -> Answer:
        ours = {"Sec-Fetch-Site": "same-origin"} if is_ours else {}
        return self._ask("POST", path, session, {**ours, **(headers or {})}, urlencode(fields or {}, doseq=True))

    def follow(self, answer: Answer, session: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Asks for the page that a form led to, as a browser does: with the cookies that the answer set."""
        assert answer.status == 303, answer.text
        kept = {f"__Host-{self.console.cookie_name}": session}
        for cookie in answer.cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            kept[name] = value
        cookies = "; ".join(f"{name}={value}" for name, value in kept.items())
        return self.get(answer.headers["location"], headers={**(headers or {}), "Cookie": cookies})

    def send_event(self, payload: bytes, signature: str) -> Answer:
        """Posts an event as the payment provider does."""
        headers = {"Content-Type": "application/json", "Stripe-Signature": signature}
        return self._ask("POST", "/stripe/webhook", "", headers, payload)

    def send_file(
        self, path: str, session: str, content: bytes, name: str = "notes.txt", *, field: str = "document"
    ) -> Answer:
        """Posts a file as the form of a browser does."""
        boundary = "----WebKitFormBoundaryAbCdEf0123456789"
        head = f'Content-Disposition: form-data; name="{field}"; filename="{name}"\r\nContent-Type: text/plain'
        body = f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + f"\r\n--{boundary}--\r\n".encode()
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self._ask("POST", path, session, headers, body)

    def _ask(
        self, method: str, path: str, session: str, headers: Mapping[str, str] | None, body: str | bytes | None
    ) -> Answer:
        status, headers, cookies, content = self._exchange(method, path, session, headers, body)
        return Answer(status, headers, cookies, content.decode())

    def _exchange(
        self, method: str, path: str, session: str, headers: Mapping[str, str] | None, body: str | bytes | None
    ) -> tuple[int, Mapping[str, str], tuple[str, ...], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": f"localhost:{self.port}", **(headers or {})}
        if session:
            sent["Cookie"] = f"__Host-{self.console.cookie_name}={session}"
        if isinstance(body, str):
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        cookies = tuple(response.headers.get_all("set-cookie") or ())
        return response.status, {k.lower(): v for k, v in response.headers.items()}, cookies, content
