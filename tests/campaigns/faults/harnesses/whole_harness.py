"""A harness as a person runs it: `legato up`, whose supervisor starts again what dies."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cli.connection import ServiceStubs
from services.chassis.process import failpoints
from tests.campaigns.faults.books.ledger import LedgerReader
from tests.campaigns.faults.client import Provider
from tests.campaigns.faults.harnesses.harness import FaultHarness
from tests.campaigns.faults.harnesses.zygote import with_bytecode
from tests.support.service import Service

SETTINGS = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    # Here processes die all the time, and are well.
    "LEGATO_LONGEST_RESTART_DELAY_S": "0.1",
}


class WholeHarness(FaultHarness):
    def __init__(self, provider: Provider, *, edges: int = 1, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(provider, edges)
        environ = {
            **with_bytecode(),
            **SETTINGS,
            "LEGATO_JOURNALS": str(self.journals),
            failpoints.VARIABLE: str(self.failpoints),
            **(settings or {}),
        }
        self._service = Service(provider, environ, workers=edges)
        self.data = self._service.data
        self.ledger = LedgerReader.of_file(self.data)

    async def start(self) -> None:
        # In the way of everybody else, because a child dies with the thread that started it.
        self._service.start()
        self.address = self._service.address

    async def stop(self) -> None:
        self._service.__exit__()
        self.remove()

    @property
    def services(self) -> ServiceStubs:
        return self._service.services

    def deaths(self) -> Counter[str]:
        return Counter({name: state["restarts"] for name, state in self._service.states().items()})

    def send_signal(self, name: str, number: signal.Signals) -> None:
        pid = self._service.states()[name]["pid"]
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def replace(self, name: str, old_journals: Mapping[Path, bytes]) -> None:
        before = self.deaths()[name]
        self.send_signal(name, signal.SIGKILL)
        while self.deaths()[name] == before:
            await asyncio.sleep(0.002)
        # The next one is still far from reading them: it takes a second to be loaded.
        self._lose_journals(old_journals)

    def log_of(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"
