"""Tracks the replicas of a service by resolving its name repeatedly; each that is used has its own exchange."""

import asyncio
import hashlib
import itertools
import socket
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from services.chassis.errors import unavailable
from services.chassis.rpc.subset import Choice, Subset
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

# Every second while a replica is unavailable: in a rollout another has replaced it, and the next may be about to stop.
RESOLVE_SOON_S = 1.0
RESOLVE_EVERY_TURNS = 5
# A replica that was connected at most this many turns ago may still become usable: no other is connected in its place.
CONNECTING_TURNS = 2
# A replica may be preferred while its calls are not more than so many times those of the least loaded, and some.
AFFINITY_LOAD_FACTOR = 1.25
AFFINITY_SPARE_CALLS = 4
# Precedes the zone of an address.
ZONE = ";zone="


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


class Endpoint(NamedTuple):
    """An entry of an address setting: a host may resolve to many machines, all in `zone` if that is not empty."""

    address: str
    zone: str = ""


class Replicas(Generic[ReplicaT]):
    def __init__(
        self,
        service: str,
        addresses: str,
        connect: Callable[[str], ReplicaT],
        log: Log,
        subset: Subset | None = None,
    ) -> None:
        """Takes `addresses` as unix:PATH or HOST:PORT, comma-separated, each with its zone if it ends in `;zone=NAME`.
        Connects to all replicas, or to those that `subset` chooses."""
        self._service = service
        self._endpoints = parse_endpoints(addresses)
        self._connect = connect
        self._log = log
        self._subset = subset
        self._replicas: dict[str, ReplicaT] = {}
        # The zone of every listed address.
        self._zones: dict[str, str] = {}
        # All known addresses in the order of preference, and how many are used.
        self._choice = Choice([], 0)
        # Turns left to those that were connected lately.
        self._connecting: dict[str, int] = {}
        self._resolver: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._resolve()
        self._resolver = asyncio.create_task(self._keep_resolving())

    async def close(self) -> None:
        if self._resolver is not None:
            self._resolver.cancel()
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()))

    def least_loaded(self, other_than: ReplicaT | None = None, *, affinity: str = "") -> ReplicaT:
        """Returns the least loaded replica that new calls may go to. Calls of the same `affinity` get the same one, on
        every edge, as long as it has hardly more to do than the least loaded."""
        usable = self._in_use()
        if other_than is not None:
            usable = [replica for replica in usable if replica is not other_than]
        if not usable:
            others = [replica for replica in self._replicas.values() if replica is not other_than]
            usable = [replica for replica in others if replica.usable] or [each for each in others if each.is_leaving]
        if not usable:
            raise unavailable(self._service)
        if len(usable) == 1:
            return usable[0]
        least_loaded = min(usable, key=lambda replica: replica.load)
        if not affinity:
            return least_loaded
        by_address = {address: replica for address, replica in self._replicas.items() if replica in usable}
        preferred = by_address[_preferred([*by_address], affinity)]
        most_load = AFFINITY_LOAD_FACTOR * least_loaded.load + AFFINITY_SPARE_CALLS
        return preferred if preferred.load <= most_load else least_loaded

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
            # Until their successors are found.
            usable = [address for address, replica in self._replicas.items() if replica.is_leaving]
        if not usable:
            raise unavailable(self._service)
        return self._replicas[_preferred(usable, account_id)]

    def home_of(self, account_id: str) -> str:
        """Returns the address of the replica that an account has while all of them are usable; empty without any."""
        return _preferred([*self._replicas], account_id) if self._replicas else ""

    @property
    def _is_complete(self) -> bool:
        return all(replica.usable for replica in self._replicas.values())

    def _in_use(self) -> list[ReplicaT]:
        """Returns the usable replicas of the choice. While one of them is not, the next in order replaces it."""
        usable: list[ReplicaT] = []
        for address in self._choice.order:
            replica = self._replicas.get(address)
            if replica is not None and replica.usable:
                if self._connecting:
                    self._connecting.pop(address, None)
                usable.append(replica)
                if len(usable) == self._choice.size:
                    return usable
        self._connect_missing()
        return usable

    def _connect_missing(self) -> None:
        """Connects to replicas in order, until enough of them are usable or may be soon."""
        missing = self._choice.size
        for address in self._choice.order:
            if missing <= 0:
                return
            replica = self._replicas.get(address)
            if replica is None:
                self._replicas[address] = self._connect(address)
                self._connecting[address] = CONNECTING_TURNS
            elif not replica.usable and address not in self._connecting:
                continue
            missing -= 1

    async def _keep_resolving(self) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(RESOLVE_SOON_S)
            self._connecting = {address: left - 1 for address, left in self._connecting.items() if left > 1}
            if turn % RESOLVE_EVERY_TURNS == 0 or not self._is_complete:
                await self._resolve()
            await self._close_surplus()

    async def _resolve(self) -> None:
        zones: dict[str, str] = {}
        for endpoint in self._endpoints:
            try:
                zones |= dict.fromkeys(await resolve(endpoint.address), endpoint.zone)
            except OSError:
                # A DNS outage must not cost us the known replicas.
                self._log.warning("replicas.unresolved", name=self._service, address=endpoint.address)
                zones |= self._zones
        self._zones = zones
        for address in self._replicas.keys() - zones.keys():
            replica = self._replicas[address]
            if not replica.usable and not replica.load:
                # It has no calls and nothing answers there: it has ended, and is not just unlisted.
                await self._drop(address)
        if self._subset is None:
            choice = Choice(list(zones), len(zones))
        else:
            await self._subset.update_position()
            choice = self._subset.choose(zones)
        unlisted = [address for address in self._replicas if address not in zones]
        # What is only unlisted serves where others do not, and where all are used.
        is_all = choice.size == len(choice.order)
        self._choice = Choice([*choice.order, *unlisted], choice.size + len(unlisted) if is_all else choice.size)
        self._in_use()

    async def _close_surplus(self) -> None:
        """Closes what was connected in place of others that are back, or before the choice changed, once its calls have
        ended."""
        in_use = self._in_use()
        if len(in_use) < self._choice.size:
            return
        for address in reversed(self._choice.order):
            replica = self._replicas.get(address)
            if not in_use or replica is in_use[-1]:
                return
            if replica is not None and not replica.load:
                await self._drop(address)

    async def _drop(self, address: str) -> None:
        self._connecting.pop(address, None)
        await self._replicas.pop(address).close()


def _preferred(addresses: list[str], account_id: str) -> str:
    if len(addresses) == 1:
        return addresses[0]
    return max(addresses, key=lambda address: hashlib.blake2b(f"{account_id} {address}".encode()).digest())


def parse_endpoints(addresses: str) -> list[Endpoint]:
    return [_parse(entry.strip()) for entry in addresses.split(",") if entry.strip()]


def _parse(entry: str) -> Endpoint:
    address, _, zone = entry.partition(ZONE)
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or (host and port.isdecimal() and int(port) < 65536):
        return Endpoint(address, zone)
    raise SettingsError(f"{entry} is not an address: unix:PATH or HOST:PORT")


async def resolve(address: str) -> set[str]:
    """Returns all addresses of a host."""
    if address.startswith("unix:"):
        return {address}
    host, _, port = address.rpartition(":")
    infos = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    return {f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos}
