"""The principals that the edge has verified, and for how long it may believe what it remembers.

docs/revocation.md tells why. Nothing here waits or asks: what was heard is put in, and what counts is given out.
"""

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from protos.auth.v1 import auth_pb2 as pb
from services.chassis.timing.clock import Clock

if TYPE_CHECKING:
    from edge.principal import Principal

LEASE_S = 0.8
MOST_CACHED_PRINCIPALS = 100_000
HOUR_S = 3600.0


class _Entry:
    __slots__ = ("epoch", "expires_at_s", "note_again_at_s", "principal")

    def __init__(self, principal: "Principal", epoch: int, note_again_at_s: float) -> None:
        self.principal = principal
        self.epoch = epoch
        self.expires_at_s = float("inf") if principal.expires_at_s is None else principal.expires_at_s
        # When its next use is one to tell auth of, since it falls into another hour.
        self.note_again_at_s = note_again_at_s


class PrincipalCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = 0
        self._lease_from_s = float("-inf")
        # What auth's time is ahead of our elapsed seconds; what our own clock says does not matter.
        self._auth_ahead_s = 0.0
        # The least recently verified first.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._digest_by_key_id: dict[str, bytes] = {}
        self._used_key_ids: set[str] = set()

    @property
    def epoch(self) -> int:
        """The newest that was acted on."""
        return self._epoch

    @property
    def lag_s(self) -> float:
        """How old that is what we know about keys; infinite where we know nothing yet."""
        return self._clock.elapsed_s() - self._lease_from_s

    def find(self, digest: bytes) -> "Principal | None":
        """Whose key has this digest, if that is known and counts now. A key that has expired by what we know of auth's
        time is not given out either: auth itself is asked, which refuses it."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        now_s = self._clock.elapsed_s()
        if now_s - self._lease_from_s >= LEASE_S or now_s + self._auth_ahead_s >= entry.expires_at_s:
            return None
        if now_s >= entry.note_again_at_s:
            self._note(entry, now_s)
        return entry.principal

    def put(
        self, digest: bytes, principal: "Principal", epoch: int, asked_at_s: float, *, once_only: bool = False
    ) -> bool:
        """Whether an answer of auth may be used. An answer that took long, or that was read before a change that we
        have already heard of, may be about a key that is no longer good: it is neither used nor remembered. One that is
        for once is used and not remembered."""
        now_s = self._clock.elapsed_s()
        if now_s - asked_at_s >= LEASE_S or epoch < self._epoch:
            return False
        if once_only:
            if digest in self._entries:
                self._forget(digest)
            self.add_used_keys([principal.key_id])
            return True
        before = self._entries.pop(digest, None)
        entry = _Entry(principal, epoch, before.note_again_at_s if before is not None else float("-inf"))
        self._entries[digest] = entry
        self._digest_by_key_id[principal.key_id] = digest
        if len(self._entries) > MOST_CACHED_PRINCIPALS:
            _, oldest = self._entries.popitem(last=False)
            self._digest_by_key_id.pop(oldest.principal.key_id, None)
        if now_s >= entry.note_again_at_s:
            self._note(entry, now_s)
        return True

    def knows(self, key_id: str) -> bool:
        """Whether the key was good when auth last said something about it. False also for one that was crowded out."""
        return key_id in self._digest_by_key_id

    def apply_heartbeat(self, heartbeat: pb.WatchResponse, sent_at_s: float | None) -> None:
        """Forget first, then prolong: the lease may never cover what should be forgotten. `sent_at_s` is when the ping
        was sent that the heartbeat echoes; when it came does not matter, it may have been under way for long."""
        self._epoch = max(self._epoch, heartbeat.epoch)
        if heartbeat.forget_all:
            for digest in [d for d, entry in self._entries.items() if entry.epoch < heartbeat.epoch]:
                self._forget(digest)
        for key_id in heartbeat.changed_key_ids:
            changed = self._digest_by_key_id.get(key_id)
            if changed is not None and self._entries[changed].epoch < heartbeat.epoch:
                self._forget(changed)
        if sent_at_s is not None and sent_at_s > self._lease_from_s:
            self._lease_from_s = sent_at_s
            # At most a lease more than it is, and never less: auth read it after our ping had come. It comes with every
            # lease, so that it is right again after clocks have stood still or were set.
            self._auth_ahead_s = self._time_of(heartbeat) - sent_at_s

    def pop_used_keys(self, most: int) -> list[str]:
        """Keys that were used, each once an hour, to be told to auth."""
        if not self._used_key_ids:
            return []
        taken = list(islice(self._used_key_ids, most))
        self._used_key_ids.difference_update(taken)
        return taken

    def add_used_keys(self, key_ids: list[str]) -> None:
        """What auth may not have heard."""
        if len(self._used_key_ids) < MOST_CACHED_PRINCIPALS:
            self._used_key_ids.update(key_ids)

    def _time_of(self, heartbeat: pb.WatchResponse) -> float:
        if heartbeat.HasField("read_time"):
            return heartbeat.read_time.ToMicroseconds() / 1e6
        # An auth of an older version.
        return self._clock.now().timestamp()

    def _forget(self, digest: bytes) -> None:
        entry = self._entries.pop(digest)
        self._digest_by_key_id.pop(entry.principal.key_id, None)

    def _note(self, entry: _Entry, now_s: float) -> None:
        entry.note_again_at_s = now_s + HOUR_S - self._clock.now().timestamp() % HOUR_S
        self.add_used_keys([entry.principal.key_id])
