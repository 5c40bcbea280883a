"""Watches auth for changed keys, and invalidates what is cached of them.

Two replicas are watched at once where there are two. Each is pinged on a stream of its own, and heartbeats of either
count: one that dies, stalls or is slow costs the edge nothing, and no failover is needed.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import grpc
import grpc.aio

from edge.access.maintenance import MaintenanceMode
from edge.access.principal_cache import PrincipalCache
from edge.access.used_networks import KeyNetwork, UsedNetworks
from edge.backends.auth import AuthClient, AuthReplica, WatchCall
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

WATCHED = 2
PING_EVERY_S = 0.2
# How often a watcher looks for a further replica while another one watches the only one there is.
LOOK_EVERY_S = 1.0
# Timeout after which a silent watch is reopened on another connection or another replica.
SILENCE_S = 2.0
# The echo of an older ping is of no use.
PING_FORGOTTEN_AFTER_S = 60.0
USED_KEYS_PER_PING = 1_000

# Used keys, and networks that keys were used from.
Reported = tuple[list[str], list[KeyNetwork]]

# Errors that a broken connection ends a stream with.
_BREAKS = (grpc.RpcError, asyncio.InvalidStateError, TimeoutError)


class Watch:
    def __init__(
        self,
        auth: AuthClient,
        principal_cache: PrincipalCache,
        used_networks: UsedNetworks,
        maintenance: MaintenanceMode,
        on_news: Callable[[pb.WatchResponse], None],
        clock: Clock,
        log: Log,
    ) -> None:
        """Calls `on_news` for each heartbeat with a newer epoch, after the cache was invalidated."""
        self._auth = auth
        self._principal_cache = principal_cache
        self._used_networks = used_networks
        self._maintenance = maintenance
        self._on_news = on_news
        self._clock = clock
        self._log = log
        # Send times by ping number, the oldest first. Numbers are never reused, whichever stream a ping goes on.
        self._sent_at_s: dict[int, float] = {}
        self._last_ping_no = 0
        # Set when auth has answered for the first time.
        self.heard = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        # How many of them have a replica.
        self._watching = 0

    def start(self) -> None:
        self._watchers = [asyncio.create_task(self._keep_watching()) for _ in range(WATCHED)]

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _keep_watching(self) -> None:
        while True:
            replica = self._auth.unwatched()
            if replica is not None:
                self._watching += 1
                try:
                    await self._watch(replica)
                finally:
                    self._watching -= 1
            await asyncio.sleep(LOOK_EVERY_S if replica is None and self._watching else PING_EVERY_S)

    async def _watch(self, replica: AuthReplica) -> None:
        """Reads and pings until the stream ends. The lease then expires by itself."""
        reported: dict[int, Reported] = {}
        with replica.watched() as stream:
            # Each has its own task: cancelling a stream cancels the task that reads it, which must not be this one.
            parts = [
                asyncio.create_task(self._read(stream, replica, reported)),
                asyncio.create_task(self._ping(stream, reported)),
            ]
            try:
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for part in parts:
                    part.cancel()
                outcomes = await asyncio.gather(*parts, return_exceptions=True)
                for key_ids, networks in reported.values():
                    self._principal_cache.add_used_keys(key_ids)
                    self._used_networks.add(networks)
        if any(isinstance(outcome, TimeoutError) for outcome in outcomes):
            await replica.reconnect()
        for outcome in outcomes:
            # A broken connection is not logged; anything else is a bug.
            if isinstance(outcome, Exception) and not isinstance(outcome, _BREAKS):
                self._log.failure("watch.failed", outcome)

    async def _read(self, stream: WatchCall, replica: AuthReplica, reported: dict[int, Reported]) -> None:
        while True:
            async with asyncio.timeout(SILENCE_S):
                received = await stream.read()
            if received is grpc.aio.EOF:
                return
            heartbeat = cast(pb.WatchResponse, received)
            replica.heard()
            self._apply(heartbeat)
            for ping_no in [number for number in reported if number <= heartbeat.echoed_ping_no]:
                del reported[ping_no]

    async def _ping(self, stream: WatchCall, reported: dict[int, Reported]) -> None:
        """Pings. `told` collects the used keys and networks that auth has not acknowledged."""
        while True:
            ping_no, now_s = self._last_ping_no + 1, self._clock.elapsed_s()
            self._last_ping_no = ping_no
            # Recorded before it is sent, since a lease counts from then.
            self._sent_at_s[ping_no] = now_s
            self._forget_pings(now_s)
            used = self._principal_cache.pop_used_keys(USED_KEYS_PER_PING)
            networks = self._used_networks.pop(USED_KEYS_PER_PING)
            if used or networks:
                reported[ping_no] = used, networks
            ping = pb.WatchRequest(ping_no=ping_no, epoch=self._principal_cache.epoch, used_key_ids=used)
            for key_id, network in networks:
                ping.used_networks.add(key_id=key_id, network=network)
            await stream.write(ping)
            await asyncio.sleep(PING_EVERY_S)

    def _apply(self, heartbeat: pb.WatchResponse) -> None:
        # A late heartbeat of the other replica may name keys that are valid again.
        is_news = heartbeat.epoch > self._principal_cache.epoch
        # Must come before the lease is renewed, like everything that it covers.
        self._maintenance.update(heartbeat)
        self._principal_cache.apply_heartbeat(heartbeat, self._sent_at_s.get(heartbeat.echoed_ping_no))
        if is_news:
            self._on_news(heartbeat)
        self.heard.set()

    def _forget_pings(self, now_s: float) -> None:
        oldest = next(iter(self._sent_at_s))
        if now_s - self._sent_at_s[oldest] > PING_FORGOTTEN_AFTER_S:
            del self._sent_at_s[oldest]
