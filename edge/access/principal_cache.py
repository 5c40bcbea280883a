"""Caches verified principals, for as long as auth's watch grants a lease on them."""

from collections import OrderedDict
from itertools import islice

from edge.backends.auth import Principal
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.timing.deadlines import Clock

LEASE_S = 0.8
MOST_CACHED_PRINCIPALS = 100_000
HOUR_S = 3600.0


class _Entry:
    __slots__ = ("epoch", "expires_at_s", "principal", "record_again_at_s")

    def __init__(self, principal: Principal, epoch: int, record_again_at_s: float) -> None:
        self.principal = principal
        self.epoch = epoch
        self.expires_at_s = float("inf") if principal.expires_at_s is None else principal.expires_at_s
        # When its next use is reported to auth, since that falls into another hour.
        self.record_again_at_s = record_again_at_s


class PrincipalCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The newest epoch applied.
        self.epoch = 0
        self._lease_from_s = float("-inf")
        # Auth's time minus our elapsed seconds; our own wall clock does not matter.
        self._auth_ahead_s = 0.0
        # Ordered by verification, the least recent first.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        # By the ids of keys and playground tokens.
        self._digest_by_id: dict[str, bytes] = {}
        self._used_key_ids: set[str] = set()

    @property
    def lag_s(self) -> float:
        """The age of what is cached; infinite before the first heartbeat."""
        return self._clock.elapsed_s() - self._lease_from_s

    def find(self, digest: bytes) -> Principal | None:
        """Returns the principal with this key digest if it is cached and the lease holds. A key that has expired by
        auth's time is not returned either: auth itself is called, which refuses it."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        now_s = self._clock.elapsed_s()
        if now_s - self._lease_from_s >= LEASE_S or now_s + self._auth_ahead_s >= entry.expires_at_s:
            return None
        if now_s >= entry.record_again_at_s:
            self._record(entry, now_s)
        return entry.principal

    def put(
        self, digest: bytes, principal: Principal, epoch: int, asked_at_s: float, *, once_only: bool = False
    ) -> bool:
        """Caches an answer of auth and returns whether it may be used. An answer that took long, or is older than a
        change that we know of, may be about a revoked key: it is neither used nor cached. A `once_only` answer is used
        and not cached."""
        now_s = self._clock.elapsed_s()
        if now_s - asked_at_s >= LEASE_S or epoch < self.epoch:
            return False
        if once_only:
            if digest in self._entries:
                self._forget(digest)
            self.add_used_keys([principal.key_id])
            return True
        before = self._entries.pop(digest, None)
        entry = _Entry(principal, epoch, before.record_again_at_s if before is not None else float("-inf"))
        self._entries[digest] = entry
        self._digest_by_id[principal.credential_id] = digest
        if len(self._entries) > MOST_CACHED_PRINCIPALS:
            _, oldest = self._entries.popitem(last=False)
            self._digest_by_id.pop(oldest.principal.credential_id, None)
        if now_s >= entry.record_again_at_s:
            self._record(entry, now_s)
        return True

    def knows(self, key_id: str) -> bool:
        """Returns whether the key was valid when auth last named it. Also False for an evicted one."""
        return key_id in self._digest_by_id

    def apply_heartbeat(self, heartbeat: pb.WatchResponse, sent_at_s: float | None) -> None:
        """Invalidates first, then renews the lease, which may never cover what should be invalidated. `sent_at_s` is
        when the echoed ping was sent; the heartbeat itself may have been delayed."""
        self.epoch = max(self.epoch, heartbeat.epoch)
        if heartbeat.forget_all:
            for digest in [d for d, entry in self._entries.items() if entry.epoch < heartbeat.epoch]:
                self._forget(digest)
        for key_id in heartbeat.changed_key_ids:
            changed = self._digest_by_id.get(key_id)
            if changed is not None and self._entries[changed].epoch < heartbeat.epoch:
                self._forget(changed)
        if sent_at_s is not None and sent_at_s > self._lease_from_s:
            self._lease_from_s = sent_at_s
            # Never too low, and too high by a lease at most: auth read it after our ping arrived. It is set with every
            # lease, so that it is right again after a clock stopped or was set.
            self._auth_ahead_s = self._time_of(heartbeat) - sent_at_s

    def pop_used_keys(self, most: int) -> list[str]:
        """Removes and returns keys to report to auth as used."""
        if not self._used_key_ids:
            return []
        taken = list(islice(self._used_key_ids, most))
        self._used_key_ids.difference_update(taken)
        return taken

    def add_used_keys(self, key_ids: list[str]) -> None:
        """Queues keys to report as used."""
        if len(self._used_key_ids) < MOST_CACHED_PRINCIPALS:
            self._used_key_ids.update(key_ids)

    def _time_of(self, heartbeat: pb.WatchResponse) -> float:
        if heartbeat.HasField("read_time"):
            return heartbeat.read_time.ToMicroseconds() / 1e6
        # Auth has an older version.
        return self._clock.now().timestamp()

    def _forget(self, digest: bytes) -> None:
        entry = self._entries.pop(digest)
        self._digest_by_id.pop(entry.principal.credential_id, None)

    def _record(self, entry: _Entry, now_s: float) -> None:
        entry.record_again_at_s = now_s + HOUR_S - self._clock.now().timestamp() % HOUR_S
        self.add_used_keys([entry.principal.key_id])
