"""Learns the networks that keys are used from, and gives a notice of a new one.

A network is the first 24 bits of an IPv4 address, or the first 48 of an IPv6 address. Stored is only its HMAC under a
pepper, together with the key. The first network of a key is learned without a notice.
"""

import hmac
import ipaddress
from typing import Final

from services.auth.core.checks import is_id
from services.auth.core.parts import Parts
from services.auth.core.store import Connection
from services.auth.core.times import DAY_US
from services.auth.keys.rules.reports import Reports
from services.auth.notices.records import Kind, OwnerNotice
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.rules.words import id_of, make_notice
from services.auth.notices.store import key_networks as stored

# A network that was not used for this long is new again.
FORGOTTEN_AFTER_US: Final = 90 * DAY_US
# Of one key. The one that was not used for longest gives way.
NETWORKS_MOST: Final = 100
# Of one key in a day: programs on rented machines change networks all the time. Further ones are learned silently.
NOTICES_A_DAY_MOST: Final = 3

KeyNetwork = tuple[str, str]


class KeyNetworks(Reports[KeyNetwork]):
    WAITING_MOST = 10_000
    AT_ONCE_MOST = 500
    FAILURE = "key_networks.not_written"

    def __init__(self, parts: Parts, recorder: NoticeRecorder) -> None:
        super().__init__(parts)
        self._recorder = recorder
        self._secrets = parts.peppers.derive("key networks")

    def is_valid(self, report: KeyNetwork) -> bool:
        return is_id(report[0]) and _is_network(report[1])

    def write(self, connection: Connection, reports: list[KeyNetwork]) -> None:
        """Learns networks."""
        now_us, newest = self.now_us(), self._peppers.newest
        keys = {row.key_id: row for row in stored.find_keys(connection, {key_id for key_id, _ in reports})}
        # By key: digests with when they were first and last used.
        known: dict[str, dict[bytes, tuple[int, int]]] = {key_id: {} for key_id in keys}
        for row in stored.list_networks(connection, keys):
            if row.pepper_version in self._secrets:
                known[row.key_id][row.digest] = (row.first_used_at_us, row.last_used_at_us)
        for key_id, network in reports:
            key = keys.get(key_id)
            if key is None:
                continue
            networks = known[key_id]
            found = next((each for each in self._digests(key_id, network) if each in networks), None)
            if found is not None:
                if networks[found][1] <= now_us - DAY_US:
                    stored.record_network(connection, key_id, found, now_us)
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
