"""A harness whose processes are forked from a zygote, and forked again at once when they die."""

import asyncio
import os
import secrets
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cli.connection import ServiceStubs, running_services
from services.chassis.process import failpoints
from tests.campaigns.faults.books.card_payments import CardPayments
from tests.campaigns.faults.books.closed_books import SETTINGS, Archives
from tests.campaigns.faults.books.ledger import LedgerReader
from tests.campaigns.faults.bugs import MOVED_CLOCK
from tests.campaigns.faults.client import Provider
from tests.campaigns.faults.harnesses.book_clock import VARIABLE, BookClock
from tests.campaigns.faults.harnesses.harness import FaultHarness
from tests.campaigns.faults.harnesses.zygote import Forks, Order, Told
from tests.support.service import NEVER_SATURATED, ROUTES

START_TIMEOUT_S = 120.0


class ForkedHarness(FaultHarness):
    def __init__(
        self,
        forks: Forks,
        provider: Provider,
        *,
        edges: int = 1,
        meterings: int = 1,
        database_url: str = "",
        settings: Mapping[str, str] | None = None,
        changes: tuple[str, ...] = (),
        has_months: bool = False,
    ) -> None:
        """Takes SQLite files, for one metering only, without `database_url`. `changes` are made to the code of
        every process: see `bugs.py`. With `has_months`, months end when the campaign says so, and there is a process
        for card payments."""
        super().__init__(provider, edges, meterings)
        self._forks = forks
        self._database_url = database_url
        self._changes = (*changes, MOVED_CLOCK) if has_months else changes
        self._listener = forks.borrow_listener()
        self.address = self._listener.getsockname()
        self.data.mkdir()
        archives = None
        if has_months:
            archives, self.clock = Archives(self.folder / "archives"), BookClock(self.folder / "clock")
            settings = {**SETTINGS, "LEGATO_RETENTION_ARCHIVE": str(archives.folder), **(settings or {})}
            self.names.append("payments")
        self.ledger = (
            LedgerReader(database_url, archives) if database_url else LedgerReader.of_file(self.data, archives)
        )
        self._environ = self._make_environ(settings or {})
        # Of every process that was ordered; None while it has not started.
        self._pids: dict[str, int | None] = {}
        self._deaths: Counter[str] = Counter()
        self._kept_down: set[str] = set()
        self._services: ServiceStubs | None = None

    async def start(self) -> None:
        if self.clock is not None:
            self.cards = CardPayments(self._socket("payments"))
        for name in self.names:
            self._order(name)
        async with asyncio.timeout(START_TIMEOUT_S):
            while self.open_still():
                await asyncio.sleep(0.02)
        self._services = running_services(self.data, environ={})

    async def stop(self) -> None:
        if self._services is not None:
            self._services.close()
        for name in self.names:
            await self._end(name)
        if self.cards is not None:
            await self.cards.close()
        self._forks.give_back(self._listener)
        self.remove()

    @property
    def services(self) -> ServiceStubs:
        assert self._services is not None, "the harness was not started"
        return self._services

    def deaths(self) -> Counter[str]:
        return self._deaths.copy()

    def send_signal(self, name: str, number: signal.Signals) -> None:
        pid = self._pids.get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def replace(self, name: str, old_journals: Mapping[Path, bytes]) -> None:
        await self._end(name)
        self._lose_journals(old_journals)
        self._kept_down.discard(name)
        self._order(name)

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    async def _end(self, name: str) -> None:
        """Keeps it down until it is ordered again."""
        self._kept_down.add(name)
        while name in self._pids and not self._forks.is_gone:
            self.send_signal(name, signal.SIGKILL)
            await asyncio.sleep(0.001)

    def _make_environ(self, settings: Mapping[str, str]) -> dict[str, str]:
        routes = self.folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=self.provider.base_url))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        environ |= {
            "LEGATO_DATA": str(self.data),
            "LEGATO_JOURNALS": str(self.journals),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            "LEGATO_REQUESTS_PER_MINUTE": "1000000",
            **NEVER_SATURATED,
            "LEGATO_EDGE_FD": str(self._listener.fileno()),
            "LEGATO_METERING_ADDRESS": ",".join(self._socket(name) for name in self.metering_names),
            failpoints.VARIABLE: str(self.failpoints),
            **settings,
        }
        if self._database_url:
            environ["LEGATO_DATABASE_URL"] = self._database_url
        return environ

    def _order(self, name: str) -> None:
        service = name.partition("-")[0]
        listen = {"LEGATO_EDGE_HEALTH_LISTEN": self._socket(name)}
        if service == "metering":
            # Where it makes the folder for its socket itself, it has but one name for it.
            (self.data / "run").mkdir(mode=0o700, exist_ok=True)
            listen = {"LEGATO_METERING_LISTEN": self._socket(name)}
            if self.clock is not None:
                listen[VARIABLE] = str(self.clock.file)
        if service == "payments" and self.cards is not None:
            listen = self.cards.environ
        order = Order(
            name=f"{self.folder.name} {name}",
            service=service,
            environ={**self._environ, **listen},
            output=str(self.log_of(name)),
            keep_fd=self._listener.fileno() if service == "edge" else None,
            changes=self._changes,
        )
        self._pids[name] = None
        self._forks.order(order, lambda told: self._hear(name, told))

    def _socket(self, name: str) -> str:
        return f"unix:{self.data}/run/{name}.sock"

    def _hear(self, name: str, told: Told) -> None:
        if told.exit_code is None:
            self._pids[name] = told.pid
            return
        del self._pids[name]
        self._deaths[name] += 1
        if name not in self._kept_down:
            self._order(name)
