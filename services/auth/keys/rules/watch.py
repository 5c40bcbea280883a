"""Keeps the caches of callers valid: every heartbeat answers a ping with a later read of the database.

A caller counts its lease from when it *sent* the ping that a heartbeat echoes. So a heartbeat echoes the newest ping
that had arrived before its read began, and without a successful read there is no heartbeat: an epoch from memory would
let a caller that is cut off from a revocation keep trusting its cache. See docs/revocation.md.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from services.auth.core.times import to_micros
from services.auth.keys.records import Changes
from services.chassis.errors import unavailable
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# Callers ping five times a second. gRPC does not notice a caller that vanished silently; this timeout does.
SILENCE_S: Final = 10.0

RecordNetworks = Callable[[Sequence[tuple[str, str]]], None]


@dataclass(frozen=True, slots=True)
class Ping:
    number: int
    # The newest epoch that the caller has applied.
    epoch: int
    # Keys that the caller has recently accepted.
    used_key_ids: Sequence[str] = ()
    # Keys with networks that they were recently used from.
    used_networks: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    changes: Changes
    echoed_ping_no: int
    # Our time, after that ping had arrived and before the read.
    read_at_us: int


class _NewestPing:
    """Holds the newest ping: a read that begins now answers all pings so far, so older ones are dropped."""

    def __init__(self) -> None:
        self._ping: Ping | None = None
        self._has_ended = False
        self._changed = asyncio.Event()

    def put(self, ping: Ping) -> None:
        self._ping = ping
        self._changed.set()

    def close(self) -> None:
        self._has_ended = True
        self._changed.set()

    async def get(self) -> Ping | None:
        """Waits for a ping; returns None when there will be no more."""
        while self._ping is None and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        ping, self._ping = self._ping, None
        return ping

    async def fill_from(
        self, pings: AsyncIterator[Ping], record_uses: Callable[[Sequence[str]], None], record_networks: RecordNetworks
    ) -> None:
        try:
            async for ping in pings:
                self.put(ping)
                # Uses of every ping count, even if a newer one replaces it before it is answered.
                if ping.used_key_ids:
                    record_uses(ping.used_key_ids)
                if ping.used_networks:
                    record_networks(ping.used_networks)
        finally:
            self.close()


class Watches:
    """The open watches of this process."""

    def __init__(
        self,
        read_changes: Callable[[int], Awaitable[Changes]],
        record_uses: Callable[[Sequence[str]], None],
        clock: Clock,
        log: Log,
        *,
        silence_s: float = SILENCE_S,
        record_networks: RecordNetworks = lambda used: None,
    ) -> None:
        """Serves watches; `read_changes(epoch)` reads from the primary database, each time, what changed after that
        epoch. `record_uses` gets used keys and `record_networks` their networks, and both return at once: no heartbeat
        waits for them."""
        self._read_changes = read_changes
        self._record_uses = record_uses
        self._record_networks = record_networks
        self._clock = clock
        self._log = log
        self._silence_s = silence_s
        self._open: set[_NewestPing] = set()
        self._is_ending = False
        self.can_read = True

    @property
    def count(self) -> int:
        return len(self._open)

    async def serve(self, pings: AsyncIterator[Ping]) -> AsyncGenerator[Heartbeat, None]:
        if self._is_ending:
            raise unavailable("The key service")
        newest = _NewestPing()
        self._open.add(newest)
        # Pings are received during reads and sends: their order of arrival matters.
        receiving = asyncio.create_task(newest.fill_from(pings, self._record_uses, self._record_networks))
        try:
            while (ping := await self._next_ping(newest)) is not None:
                read_at_us = to_micros(self._clock.now())
                changes = await self._changes_for(ping)
                if changes is not None:
                    yield Heartbeat(changes, echoed_ping_no=ping.number, read_at_us=read_at_us)
        finally:
            self._open.discard(newest)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    def close(self) -> None:
        """Ends every watch, so that callers turn to another replica, and accepts no new ones."""
        self._is_ending = True
        for newest in self._open:
            newest.close()

    async def _next_ping(self, newest: _NewestPing) -> Ping | None:
        try:
            async with asyncio.timeout(self._silence_s):
                return await newest.get()
        except TimeoutError:
            return None

    async def _changes_for(self, ping: Ping) -> Changes | None:
        """Reads the changes; None if the database did not answer, or is behind what the caller knows."""
        try:
            changes = await self._read_changes(ping.epoch)
        except Exception as error:
            if self.can_read:
                # Once per outage, not once per ping.
                self._log.failure("watch.read_failed", error)
            self.can_read = False
            return None
        if not self.can_read:
            self._log.info("watch.read_again")
        self.can_read = True
        if changes.epoch < ping.epoch:
            # A lagging standby or a restored backup: it may lack a revocation that the caller has seen.
            self._log.warning("watch.database_is_behind", epoch=changes.epoch)
            return None
        return changes
