"""Tracks the replicas of a service by resolving its name repeatedly; each has its own exchange."""

import asyncio
import hashlib
import itertools
import socket
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from services.chassis.errors import unavailable
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

# Every second while a replica is unavailable: in a rollout another has replaced it, and the next may be about to stop.
RESOLVE_SOON_S = 1.0
RESOLVE_EVERY_TURNS = 5


class Replica(Protocol):
    @property
    def usable(self) -> bool: ...

    @property
    def is_leaving(self) -> bool:
        """Returns whether it is shutting down: it is used only if no other replica is usable."""
        ...

    @property
    def load(self) -> int: ...

    async def close(self) -> None: ...


ReplicaT = TypeVar("ReplicaT", bound=Replica)


class Replicas(Generic[ReplicaT]):
    def __init__(self, service: str, addresses: str, connect: Callable[[str], ReplicaT], log: Log) -> None:
        """Takes `addresses` as unix:PATH or HOST:PORT, comma-separated; a host may resolve to many machines."""
        self._service = service
        self._addresses = [_checked(address.strip()) for address in addresses.split(",") if address.strip()]
        self._connect = connect
        self._log = log
        self._replicas: dict[str, ReplicaT] = {}
        self._resolver: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._resolve()
        self._resolver = asyncio.create_task(self._keep_resolving())

    async def close(self) -> None:
        if self._resolver is not None:
            self._resolver.cancel()
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()))

    def least_loaded(self, other_than: ReplicaT | None = None) -> ReplicaT:
        usable = [replica for replica in self._replicas.values() if replica.usable and replica is not other_than]
        if not usable:
            usable = [replica for replica in self._leaving().values() if replica is not other_than]
        if not usable:
            raise unavailable(self._service)
        return usable[0] if len(usable) == 1 else min(usable, key=lambda replica: replica.load)

    @property
    def load(self) -> int:
        return sum(replica.load for replica in self._replicas.values())

    def count_usable(self) -> int:
        return sum(replica.usable for replica in self._replicas.values())

    def in_order(self) -> list[ReplicaT]:
        """Returns all replicas: the usable ones first, the least loaded before the others."""
        return sorted(self._replicas.values(), key=lambda replica: (not replica.usable, replica.load))

    def for_account(self, account_id: str) -> ReplicaT:
        """Returns the account's replica, the same on every edge, so that its operations share a batch (rendezvous
        hashing). When replicas come or go, only their accounts move."""
        usable = [address for address, replica in self._replicas.items() if replica.usable]
        if not usable:
            usable = list(self._leaving())
        if not usable:
            raise unavailable(self._service)
        if len(usable) == 1:
            return self._replicas[usable[0]]
        address = max(usable, key=lambda address: hashlib.blake2b(f"{account_id} {address}".encode()).digest())
        return self._replicas[address]

    def _leaving(self) -> dict[str, ReplicaT]:
        """Returns replicas that shut down, for use until their successors are found."""
        return {address: replica for address, replica in self._replicas.items() if replica.is_leaving}

    @property
    def _is_complete(self) -> bool:
        return all(replica.usable for replica in self._replicas.values())

    async def _keep_resolving(self) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(RESOLVE_SOON_S)
            if turn % RESOLVE_EVERY_TURNS == 0 or not self._is_complete:
                await self._resolve()

    async def _resolve(self) -> None:
        found: set[str] = set()
        for address in self._addresses:
            try:
                found |= await _resolve(address)
            except OSError:
                # A DNS outage must not cost us the known replicas.
                self._log.warning("replicas.unresolved", name=self._service, address=address)
                found |= self._replicas.keys()
        for address in found - self._replicas.keys():
            self._replicas[address] = self._connect(address)
        for address in self._replicas.keys() - found:
            replica = self._replicas[address]
            if not replica.usable and not replica.load:
                # It has no calls and nothing answers there: it has ended, and is not just unlisted.
                del self._replicas[address]
                await replica.close()


def _checked(address: str) -> str:
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or (host and port.isdecimal() and int(port) < 65536):
        return address
    raise SettingsError(f"{address} is not an address: unix:PATH or HOST:PORT")


async def _resolve(address: str) -> set[str]:
    if address.startswith("unix:"):
        return {address}
    host, _, port = address.rpartition(":")
    infos = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    return {f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos}
