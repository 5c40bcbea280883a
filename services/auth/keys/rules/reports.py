"""Writes what callers report with their pings. Reporting never waits: reports during a write share the next one."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from itertools import islice
from typing import ClassVar, Generic, TypeVar

from services.auth.core.parts import Domain, Parts
from services.auth.core.store import Connection

ReportT = TypeVar("ReportT")


class Reports(Domain, Generic[ReportT]):
    # Bounds what is kept while the database is unavailable; more is not worth the memory.
    WAITING_MOST: ClassVar[int]
    AT_ONCE_MOST: ClassVar[int]
    # Logged once per outage.
    FAILURE: ClassVar[str]

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._waiting: dict[ReportT, None] = {}
        self._can_write = True
        self._writing: asyncio.Task[None] | None = None

    @abstractmethod
    def is_valid(self, report: ReportT) -> bool: ...

    @abstractmethod
    def write(self, connection: Connection, reports: list[ReportT]) -> None: ...

    def record(self, reports: Iterable[ReportT]) -> None:
        """Takes reports; returns at once."""
        if len(self._waiting) < self.WAITING_MOST:
            self._waiting |= dict.fromkeys(filter(self.is_valid, reports))
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_waiting())

    async def written(self) -> None:
        """Returns when what was noted is written, or a write has failed."""
        if self._writing is not None:
            await self._writing

    async def _write_waiting(self) -> None:
        """Writes the reports; after a failure they are kept until the next one."""
        while self._waiting:
            reports = list(islice(self._waiting, self.AT_ONCE_MOST))
            for each in reports:
                del self._waiting[each]
            try:
                await self._database.write(self.write, reports)
            except Exception as error:
                self._waiting |= dict.fromkeys(reports)
                if self._can_write:
                    self._log.failure(self.FAILURE, error)
                self._can_write = False
                return
            self._can_write = True
