"""The base of auth's domains and servicers: the parts that they work with, and methods that are transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from services.auth.core.audit_log import AuditLog
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import NO_LIMITS, KeyLimits
from services.auth.core.store import Connection
from services.auth.core.times import to_micros
from services.chassis.access_tokens import Access
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# Callers accept a cached key for at most 800 ms after they asked about it; the rest allows for clock drift. So long
# after a commit, no edge acts on the previous state. See docs/revocation.md.
HOLDS_EVERYWHERE_AFTER_S: Final = 0.85

Sleep = Callable[[float], Awaitable[None]]
DomainT = TypeVar("DomainT", bound="Domain")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")


@dataclass
class Parts:
    database: Database
    peppers: Peppers
    clock: Clock
    log: Log
    sleep: Sleep = asyncio.sleep
    # What keys have where neither they nor their account have a limit.
    service_limits: KeyLimits = NO_LIMITS
    audit: AuditLog = field(init=False)

    def __post_init__(self) -> None:
        self.audit = AuditLog(self.peppers, self.clock)


class Domain:
    def __init__(self, parts: Parts) -> None:
        self._database = parts.database
        self._peppers = parts.peppers
        self._clock = parts.clock
        self._log = parts.log
        self._sleep = parts.sleep
        self._service_limits = parts.service_limits
        self._audit = parts.audit

    def now_us(self) -> int:
        return to_micros(self._clock.now())

    async def _hold_everywhere(self) -> None:
        """Returns when every edge acts on the last commit. Call it even if nothing changed: another caller may have
        made the change a moment ago."""
        await self._sleep(HOLDS_EVERYWHERE_AFTER_S)


def is_operator(by: Access | None) -> bool:
    """Returns whether a caller administers the service: on the command line, or as an operator."""
    return by is None or by.is_operator


Transaction = Callable[Concatenate[DomainT, Connection, P], ResultT]
Call = Callable[Concatenate[DomainT, P], Coroutine[object, None, ResultT]]


def writes(method: Transaction[DomainT, P, ResultT]) -> Call[DomainT, P, ResultT]:
    """Makes a method one transaction, which callers await without a connection; it has the access of their call."""

    @wraps(method)
    async def call(self: DomainT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        run = copy_context().run
        return await self._database.write(lambda connection: run(method, self, connection, *args, **kwargs))

    return call


def reads(method: Transaction[DomainT, P, ResultT]) -> Call[DomainT, P, ResultT]:
    """Makes a method a read of one snapshot, which callers await without a connection; it has the access of their
    call."""

    @wraps(method)
    async def call(self: DomainT, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        run = copy_context().run
        return await self._database.read(lambda connection: run(method, self, connection, *args, **kwargs))

    return call
