"""Learns the networks that keys are used from, and gives a notice of a new one.

A network is the first 24 bits of an IPv4 address, or the first 48 of an IPv6 address. Stored is only its HMAC under a
pepper, together with the key. The first network of a key is learned without a notice.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final

from services.auth.checks import is_id
from services.auth.notices.recording import NoticeRecorder
from services.auth.notices.words import id_of, make_notice
from services.auth.peppers import Peppers
from services.auth.records.notices import Kind, OwnerNotice
from services.auth.records.times import DAY_US, to_micros
from services.auth.store import Connection
from services.auth.store import key_networks as stored
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# A network that was not used for this long is new again.
FORGOTTEN_AFTER_US: Final = 90 * DAY_US
# Of one key. The one that was not used for longest gives way.
NETWORKS_MOST: Final = 100
# Of one key in a day: programs on rented machines change networks all the time. Further ones are learned silently.
NOTICES_A_DAY_MOST: Final = 3
# Bounds what is kept while the database is unavailable.
WAITING_MOST: Final = 10_000
_AT_ONCE_MOST: Final = 500

KeyNetwork = tuple[str, str]


class KeyNetworks:
    def __init__(self, database: Database, peppers: Peppers, recorder: NoticeRecorder, clock: Clock, log: Log) -> None:
        self._database = database
        self._peppers = peppers
        self._recorder = recorder
        self._secrets = peppers.derive("key networks")
        self._clock = clock
        self._log = log
        self._waiting: dict[KeyNetwork, None] = {}
        self._can_write = True
        self._writing: asyncio.Task[None] | None = None

    def note(self, used: Iterable[KeyNetwork]) -> None:
        """Learns networks; returns at once."""
        if len(self._waiting) < WAITING_MOST:
            self._waiting |= dict.fromkeys(each for each in used if is_id(each[0]) and _is_network(each[1]))
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Returns when what was noted is written, or a write has failed."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._waiting:
            used = list(islice(self._waiting, _AT_ONCE_MOST))
            for each in used:
                del self._waiting[each]
            try:
                await self._database.write(partial(self._learn, used=used))
            except Exception as error:
                self._waiting |= dict.fromkeys(used)
                if self._can_write:
                    # Once per outage.
                    self._log.failure("key_networks.not_written", error)
                self._can_write = False
                return
            self._can_write = True

    def _learn(self, connection: Connection, *, used: list[KeyNetwork]) -> None:
        now_us, newest = to_micros(self._clock.now()), self._peppers.newest
        keys = {row.key_id: row for row in stored.find_keys(connection, {key_id for key_id, _ in used})}
        # By key: digests with when they were first and last used.
        known: dict[str, dict[bytes, tuple[int, int]]] = {key_id: {} for key_id in keys}
        for row in stored.list_networks(connection, keys):
            if row.pepper_version in self._secrets:
                known[row.key_id][row.digest] = (row.first_used_at_us, row.last_used_at_us)
        for key_id, network in used:
            key = keys.get(key_id)
            if key is None:
                continue
            networks = known[key_id]
            found = next((each for each in self._digests(key_id, network) if each in networks), None)
            if found is not None:
                if networks[found][1] <= now_us - DAY_US:
                    stored.note_network(connection, key_id, found, now_us)
                continue
            lately = sum(first_us > now_us - DAY_US for first_us, _ in networks.values())
            if len(networks) >= NETWORKS_MOST:
                oldest = min(networks, key=lambda digest: networks[digest][1])
                del networks[oldest]
                stored.forget_network(connection, key_id, oldest)
            digest = self._digest(newest, key_id, network)
            is_new = stored.add_network(connection, key_id, digest, newest, now_us)
            if is_new and networks and lately < NOTICES_A_DAY_MOST and key.suspended_at_us is None:
                self._recorder.record(connection, _notice(key.account_id, key_id, key.name, network, digest, now_us))
            networks[digest] = (now_us, now_us)

    def _digests(self, key_id: str, network: str) -> list[bytes]:
        return [self._digest(version, key_id, network) for version in self._secrets]

    def _digest(self, version: int, key_id: str, network: str) -> bytes:
        return hmac.digest(self._secrets[version], f"{key_id} {network}".encode(), "sha256")[:16]


def _notice(account_id: str, key_id: str, key_name: str, network: str, digest: bytes, now_us: int) -> OwnerNotice:
    notice_id = id_of(Kind.KEY_NEW_NETWORK, key_id, digest.hex(), str(now_us))
    return make_notice(notice_id, account_id, Kind.KEY_NEW_NETWORK, key_id, key_name, {"network": network}, now_us)


def _is_network(given: str) -> bool:
    try:
        network = ipaddress.ip_network(given)
    except ValueError:
        return False
    return network.prefixlen == (24 if network.version == 4 else 48)
