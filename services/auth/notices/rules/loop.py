"""Keeps notices going: takes them over from metering, looks for keys that expire, delivers, and forgets old ones.

It takes over changes for the audit log on the same way."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from services.auth.core.parts import Domain, Parts
from services.auth.core.store import Connection
from services.auth.core.store.audit import forget_changes
from services.auth.core.times import DAY_US, MINUTE_US
from services.auth.notices.records import DeliveryState
from services.auth.notices.rules.delivery import NoticeDelivery
from services.auth.notices.rules.expiry import record_expiring_keys
from services.auth.notices.rules.metering_outbox import take_over
from services.auth.notices.rules.networks import FORGOTTEN_AFTER_US
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.store import notices as stored
from services.auth.notices.store.key_networks import forget_networks
from services.chassis.errors import LegatoError, Reason

if TYPE_CHECKING:
    from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceAsyncStub

KEPT_US: Final = 90 * DAY_US
FORGOTTEN_AT_ONCE: Final = 500
SLOW_EVERY_US: Final = 10 * MINUTE_US


class NoticeLoop(Domain):
    def __init__(
        self, parts: Parts, recorder: NoticeRecorder, delivery: NoticeDelivery, outbox: "OutboxServiceAsyncStub | None"
    ) -> None:
        """Takes notices over from any replica of metering: all have the same database. Without an `outbox`, none."""
        super().__init__(parts)
        self._recorder = recorder
        self._delivery = delivery
        self._outbox = outbox
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._next_slow_us = 0
        # Whose last run failed, so that an outage is logged once.
        self._failing: set[str] = set()
        # For metrics.
        self.undelivered: dict[DeliveryState, int] = {}

    def wake(self) -> None:
        """Has deliveries looked for soon. Called from the database's thread, too."""
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._woken.set)

    async def run(self, interval_s: float) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._recorder.on_new = self.wake
        delivering: asyncio.Task[None] | None = None
        try:
            while True:
                await self._gather()
                if delivering is None or delivering.done():
                    delivering = asyncio.create_task(self._attempt("delivery", self._delivery.deliver_due))
                else:
                    self._delivery.wake()
                await self._attempt("count", self._count)
                try:
                    async with asyncio.timeout(interval_s):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                self._woken.clear()
        finally:
            if delivering is not None:
                delivering.cancel()

    async def run_once(self) -> None:
        """Does everything that is due, each part whether or not the others fail; returns when no attempt runs."""
        await self._gather()
        await self._attempt("delivery", self._delivery.deliver_due)
        await self._attempt("count", self._count)

    async def _gather(self) -> None:
        now_us = self.now_us()
        if self._outbox is not None:
            taking = partial(take_over, self._database, self._outbox, self._recorder, self._audit, now_us)
            await self._attempt("outbox", taking)
        if now_us >= self._next_slow_us:
            self._next_slow_us = now_us + SLOW_EVERY_US
            await self._attempt("expiry", partial(self._database.write, self._look, now_us))

    async def _count(self) -> None:
        self.undelivered = await self._database.read(stored.count_by_state)

    def _look(self, connection: Connection, now_us: int) -> None:
        """Records keys that expire, and forgets what is old."""
        record_expiring_keys(connection, self._recorder, now_us)
        stored.forget_before(connection, now_us - KEPT_US, FORGOTTEN_AT_ONCE)
        forget_networks(connection, now_us - FORGOTTEN_AFTER_US)
        forget_changes(connection, now_us - KEPT_US)

    async def _attempt(self, part: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception as error:
            if part not in self._failing:
                if isinstance(error, LegatoError) and error.reason is Reason.UNAVAILABLE:
                    self._log.warning("notices.waiting", name=part)
                else:
                    self._log.failure("notices.failed", error, name=part)
            self._failing.add(part)
        else:
            self._failing.discard(part)
