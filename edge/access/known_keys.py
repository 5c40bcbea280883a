"""Keys that this edge knows: cached principals, the answers that run with each key, the networks that keys are used
from, and maintenance mode."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import HttpScope
from services.chassis.timing.deadlines import Clock

if TYPE_CHECKING:
    from edge.backends.auth import Principal

LEASE_S = 0.8
MOST_CACHED_PRINCIPALS = 100_000
HOUR_S = 3600.0


class _Entry:
    __slots__ = ("epoch", "expires_at_s", "note_again_at_s", "principal")

    def __init__(self, principal: "Principal", epoch: int, note_again_at_s: float) -> None:
        self.principal = principal
        self.epoch = epoch
        self.expires_at_s = float("inf") if principal.expires_at_s is None else principal.expires_at_s
        # When its next use is reported to auth, since that falls into another hour.
        self.note_again_at_s = note_again_at_s


class PrincipalCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = 0
        self._lease_from_s = float("-inf")
        # Auth's time minus our elapsed seconds; our own wall clock does not matter.
        self._auth_ahead_s = 0.0
        # Ordered by verification, the least recent first.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        # By the ids of keys and playground tokens.
        self._digest_by_id: dict[str, bytes] = {}
        self._used_key_ids: set[str] = set()

    @property
    def epoch(self) -> int:
        """The newest epoch applied."""
        return self._epoch

    @property
    def lag_s(self) -> float:
        """The age of what is cached; infinite before the first heartbeat."""
        return self._clock.elapsed_s() - self._lease_from_s

    def find(self, digest: bytes) -> "Principal | None":
        """Returns the principal with this key digest if it is cached and the lease holds. A key that has expired by
        auth's time is not returned either: auth itself is called, which refuses it."""
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
        """Caches an answer of auth and returns whether it may be used. An answer that took long, or is older than a
        change that we know of, may be about a revoked key: it is neither used nor cached. A `once_only` answer is used
        and not cached."""
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
        self._digest_by_id[principal.credential_id] = digest
        if len(self._entries) > MOST_CACHED_PRINCIPALS:
            _, oldest = self._entries.popitem(last=False)
            self._digest_by_id.pop(oldest.principal.credential_id, None)
        if now_s >= entry.note_again_at_s:
            self._note(entry, now_s)
        return True

    def knows(self, key_id: str) -> bool:
        """Returns whether the key was valid when auth last named it. Also False for an evicted one."""
        return key_id in self._digest_by_id

    def apply_heartbeat(self, heartbeat: pb.WatchResponse, sent_at_s: float | None) -> None:
        """Invalidates first, then renews the lease, which may never cover what should be invalidated. `sent_at_s` is
        when the echoed ping was sent; the heartbeat itself may have been delayed."""
        self._epoch = max(self._epoch, heartbeat.epoch)
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

    def _note(self, entry: _Entry, now_s: float) -> None:
        entry.note_again_at_s = now_s + HOUR_S - self._clock.now().timestamp() % HOUR_S
        self.add_used_keys([entry.principal.key_id])


class MaintenanceMode:
    def __init__(self) -> None:
        self._epoch = 0
        self._current = pb.Maintenance()

    @property
    def is_on(self) -> bool:
        return self._current.is_on

    def update(self, answer: pb.WatchResponse | pb.VerifyResponse) -> None:
        """Takes over the state of an answer, unless a newer one has come already. An auth of an older version does not
        send it."""
        if answer.HasField("maintenance") and answer.epoch >= self._epoch:
            self._epoch = answer.epoch
            self._current = answer.maintenance

    def raise_if_on(self) -> None:
        if self._current.is_on:
            current = self._current
            raise LegatoError(Reason.MAINTENANCE, current.message, retry_after_s=current.retry_after_s)


# Detects keys that are revoked while their answers run.
#
# A key is checked when a request arrives. Its answer may run for minutes, so delivery checks the key again at each
# piece. That must cost nothing: it reads one attribute, which is set when auth has named the key.

# The most keys that auth looks up at once.
ASKED_AT_ONCE = 1_000
ASK_AGAIN_AFTER_S = 0.2


class RunningKey:
    """The key of one running answer; a context manager."""

    __slots__ = ("_running_keys", "is_refused", "key_id")

    def __init__(self, running_keys: "RunningKeys", key_id: str) -> None:
        self._running_keys = running_keys
        self.key_id = key_id
        self.is_refused = False

    def raise_if_refused(self) -> None:
        if self.is_refused:
            raise LegatoError(
                Reason.KEY_INVALID, "The API key was revoked, or its account suspended, during this answer."
            )

    def __enter__(self) -> "RunningKey":
        return self

    def __exit__(self, *failure: object) -> None:
        self._running_keys.remove(self)


class RunningKeys:
    """The keys of all running answers; others are not kept."""

    def __init__(self, find_refused: Callable[[Sequence[str]], Awaitable[Iterable[str]]]) -> None:
        """Takes `find_refused`, which queries auth for the keys that are no longer valid."""
        self._find_refused = find_refused
        self._by_key_id: dict[str, set[RunningKey]] = {}
        self._doubted: set[str] = set()
        self._asking: asyncio.Task[None] | None = None

    def add(self, key_id: str) -> RunningKey:
        running_key = RunningKey(self, key_id)
        self._by_key_id.setdefault(key_id, set()).add(running_key)
        return running_key

    def remove(self, running_key: RunningKey) -> None:
        running = self._by_key_id.get(running_key.key_id)
        if running is not None:
            running.discard(running_key)
            if not running:
                del self._by_key_id[running_key.key_id]

    def refuse(self, key_ids: Iterable[str]) -> None:
        for key_id in key_ids:
            for running_key in self._by_key_id.get(key_id, ()):
                running_key.is_refused = True

    def recheck(self, key_ids: Iterable[str]) -> None:
        """Queries auth again for keys whose revocation may have been missed."""
        self._doubted |= self._by_key_id.keys() & key_ids
        if self._doubted and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_auth())

    def recheck_all(self) -> None:
        self.recheck(list(self._by_key_id))

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_auth(self) -> None:
        """Retries until auth has answered for every running key: it will not name these keys again by itself."""
        while self._doubted:
            asked = list(islice(self._doubted, ASKED_AT_ONCE))
            # A key that is doubted from now on needs a call that has not been sent yet.
            self._doubted.difference_update(asked)
            try:
                self.refuse(await self._find_refused(asked))
            except LegatoError:
                self._doubted.update(asked)
                await asyncio.sleep(ASK_AGAIN_AFTER_S)
                self._doubted &= self._by_key_id.keys()


KeyNetwork = tuple[str, str]

TOLD_EVERY_S: Final = 3600.0
# Bounds the memory that clients with many addresses, or with many forged headers, can take.
SEEN_MOST: Final = 100_000
# Several addresses. A longer header is one that a client made up, and is parsed each time.
LONGEST_SEEN_HEADER_BYTES: Final = 200
WAITING_MOST: Final = 10_000


class UsedNetworks:
    """Networks that keys are used from, for auth, which gives owners a notice of a new one.

    A network is the first 24 bits of an IPv4 address, or the first 48 of an IPv6 address. Each is told once an hour for
    each key. Most chats come from an address that was seen within the hour, and cost one lookup in a set.
    """

    def __init__(self, addresses: Addresses, clock: Clock) -> None:
        self._addresses = addresses
        self._clock = clock
        # Keys with addresses, and with the header of a proxy, that were seen since `_since_s`.
        self._seen: set[tuple[str, str, bytes]] = set()
        self._told: set[KeyNetwork] = set()
        self._since_s = clock.elapsed_s()
        self._waiting: dict[KeyNetwork, None] = {}

    def note(self, principal: "Principal", scope: HttpScope) -> None:
        client = scope.get("client")
        if client is None or principal.token_id:
            # A playground's user has signed in, and moves about.
            return
        seen = (principal.key_id, client[0], self._addresses.forwarded_header(scope))
        if seen in self._seen and self._clock.elapsed_s() - self._since_s < TOLD_EVERY_S:
            return
        self._learn(seen, scope)

    def pop(self, most: int) -> list[KeyNetwork]:
        """Removes and returns networks to tell auth."""
        if not self._waiting:
            return []
        taken = list(islice(self._waiting, most))
        for each in taken:
            del self._waiting[each]
        return taken

    def add(self, networks: list[KeyNetwork]) -> None:
        """Queues networks to tell auth."""
        if len(self._waiting) < WAITING_MOST:
            self._waiting |= dict.fromkeys(networks)

    def _learn(self, seen: tuple[str, str, bytes], scope: HttpScope) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._since_s >= TOLD_EVERY_S:
            self._since_s = now_s
            self._seen.clear()
            self._told.clear()
        elif len(self._seen) >= SEEN_MOST:
            self._seen.clear()
        if len(seen[2]) <= LONGEST_SEEN_HEADER_BYTES:
            self._seen.add(seen)
        address = self._addresses.of(scope)
        if address is None or address.is_loopback:
            return
        bits = 24 if address.version == 4 else 48
        used = (seen[0], str(ipaddress.ip_network((address, bits), strict=False)))
        if used not in self._told and len(self._told) < SEEN_MOST:
            self._told.add(used)
            self.add([used])
