"""A house whose processes are forked from a zygote, and forked again at once when they die."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections import Counter
from collections.abc import Mapping

import msgspec

from cli.connection import Services, running_services
from services.chassis import failpoints
from tests.faults.house import House
from tests.faults.ledger import LedgerReader
from tests.faults.provider import Provider
from tests.faults.zygote import Order, Told
from tests.service import ROUTES

START_PATIENCE_S = 120.0


class ForkedHouse(House):
    def __init__(
        self,
        provider: Provider,
        *,
        edges: int = 1,
        database_url: str = "",
        settings: Mapping[str, str] | None = None,
        bug: str = "",
    ) -> None:
        """Without `database_url`, SQLite files. `bug` is a seeded mistake that every process is made with."""
        super().__init__(provider, edges)
        self._database_url = database_url
        self._bug = bug
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.set_inheritable(True)
        self.address = self._listener.getsockname()
        self._environ = self._make_environ(settings or {})
        self._pids: dict[str, int] = {}
        self._deaths: Counter[str] = Counter()
        self._kept_down: set[str] = set()
        self._services: Services | None = None
        self.ledger = LedgerReader(database_url) if database_url else LedgerReader.of_file(self.data)

    async def start(self) -> None:
        self._zygote = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.zygote",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._listener.fileno(),),
        )
        self._hearing = asyncio.create_task(self._hear())
        for name in self.names:
            self._order(name)
        async with asyncio.timeout(START_PATIENCE_S):
            while self.open_still():
                await asyncio.sleep(0.02)
        self._services = running_services(self.data, environ={})

    async def stop(self) -> None:
        if self._services is not None:
            self._services.close()
        self._hearing.cancel()
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        await self._zygote.wait()
        self._listener.close()
        self.remove()

    @property
    def services(self) -> Services:
        assert self._services is not None, "the house was not started"
        return self._services

    def deaths(self) -> Counter[str]:
        return self._deaths.copy()

    def kill(self, name: str) -> None:
        pid = self._pids.get(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    async def replace(self, name: str) -> None:
        self._kept_down.add(name)
        self.kill(name)
        while name in self._pids:
            await asyncio.sleep(0.001)
        self.lose_journals()
        self._kept_down.discard(name)
        self._order(name)

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _make_environ(self, settings: Mapping[str, str]) -> dict[str, str]:
        self.data.mkdir()
        routes = self.folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=self.provider.base_url))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        environ |= {
            "LEGATO_DATA": str(self.data),
            "LEGATO_JOURNALS": str(self.journals),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            "LEGATO_REQUESTS_PER_MINUTE": "1000000",
            "LEGATO_EDGE_FD": str(self._listener.fileno()),
            failpoints.VARIABLE: str(self.failpoints),
            **settings,
        }
        if self._database_url:
            environ["LEGATO_DATABASE_URL"] = self._database_url
        return environ

    def _order(self, name: str) -> None:
        service, _, number = name.partition("-")
        health = {"LEGATO_EDGE_HEALTH_LISTEN": f"unix:{self.data}/run/{name}.sock"} if number else {}
        order = Order(
            name=name,
            service=service,
            environ={**self._environ, **health},
            output=str(self.folder / f"{name}.log"),
            keep_fd=self._listener.fileno() if number else None,
            bug=self._bug,
        )
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(msgspec.json.encode(order) + b"\n")

    async def _hear(self) -> None:
        assert self._zygote.stdout is not None
        while line := await self._zygote.stdout.readline():
            told = msgspec.json.decode(line, type=Told)
            if told.exit_code is None:
                self._pids[told.name] = told.pid
                continue
            self._pids.pop(told.name, None)
            self._deaths[told.name] += 1
            if told.name not in self._kept_down:
                self._order(told.name)
