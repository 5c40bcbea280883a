"""Who asks. Principals are remembered, and forgotten in time.

Asking the auth service about every request would cost more than the rest of it. So the edge remembers whom it has
verified, and a watch keeps that memory true: the edge pings, auth answers with an epoch that it read from its database
after the ping had arrived, and for 0.8 s from when that ping was sent the memory counts. Outside of the lease every
request is verified by itself. docs/revocation.md tells the whole of it.
"""

import asyncio
import hashlib
from collections.abc import Iterable

from edge.access.auth_watch import Watch
from edge.access.maintenance import MaintenanceMode
from edge.access.principal_cache import PrincipalCache
from edge.access.running_keys import RunningKey, RunningKeys
from edge.backends.auth import ANSWERS, NAME, AuthClient, AuthReplica
from edge.principal import Principal
from protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry, gauge
from services.chassis.timing.clock import Clock

# A busy machine, a restart of auth or a failover takes seconds; a client would rather wait than be refused.
VERIFY_ATTEMPTS = 6
VERIFY_AGAIN_AFTER_S = 0.2
# Longer than any key of ours; more is not worth a look.
LONGEST_KEY = 200


class Principals:
    def __init__(self, replicas: Replicas[AuthReplica], clock: Clock, log: Log, registry: Registry) -> None:
        self._auth = AuthClient(replicas)
        self._clock = clock
        self._principal_cache = PrincipalCache(clock)
        self.maintenance = MaintenanceMode()
        self._running_keys = RunningKeys(self._auth.find_refused_keys)
        self._watch = Watch(self._auth, self._principal_cache, self.maintenance, self._look_at_running, clock, log)
        # By the key's digest.
        self._verifying: dict[bytes, asyncio.Task[Principal]] = {}
        gauge(
            registry,
            "auth_revocation_lag_seconds",
            "How old that is what this edge knows about keys: the time since the newest answered ping was sent.",
            lambda: self._principal_cache.lag_s,
        )

        gauge(
            registry,
            "legato_maintenance",
            "Whether there is maintenance: then no new chats are let in.",
            lambda: self.maintenance.is_on,
        )

    def start(self) -> None:
        self._watch.start()

    async def close(self) -> None:
        await self._watch.close()
        await self._running_keys.close()
        for task in self._verifying.values():
            task.cancel()

    async def known(self) -> None:
        """Returns when auth has answered for the first time."""
        await self._watch.heard()

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        api_key = _api_key(headers)
        digest = hashlib.sha256(api_key).digest()
        return self._principal_cache.find(digest) or await self._verify_together(api_key, digest)

    def recall(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        """Who asks, where that is known without asking anybody."""
        try:
            return self._principal_cache.find(hashlib.sha256(_api_key(headers)).digest())
        except LegatoError:
            return None

    def track_key(self, principal: Principal) -> RunningKey:
        """For as long as an answer runs; it says from when on the key is no longer good."""
        running_key = self._running_keys.add(principal.key_id)
        if not self._principal_cache.knows(principal.key_id):
            # Auth may have named this key between its verification and now.
            self._running_keys.recheck([principal.key_id])
        return running_key

    async def _verify_together(self, api_key: bytes, digest: bytes) -> Principal:
        """One question for all who wait with the same key: an edge that has lost its lease because it is busy would
        else be kept busy by asking. An answer counts from when its question was sent, whoever hears it."""
        task = self._verifying.get(digest)
        if task is None:
            self._verifying[digest] = task = asyncio.create_task(self._verify(api_key, digest))
            task.add_done_callback(lambda task: self._end_verifying(digest, task))
        # Whoever asked first may leave before the answer.
        return await asyncio.shield(task)

    def _end_verifying(self, digest: bytes, task: "asyncio.Task[Principal]") -> None:
        del self._verifying[digest]
        if not task.cancelled():
            # Looked at, in case that nobody is left who would.
            task.exception()

    async def _verify(self, api_key: bytes, digest: bytes) -> Principal:
        for attempt in range(VERIFY_ATTEMPTS):
            if attempt:
                await asyncio.sleep(VERIFY_AGAIN_AFTER_S)
            asked_at_s = self._clock.elapsed_s()
            try:
                answer = await self._auth.verify(api_key.decode("ascii"))
            except LegatoError as error:
                if error.reason in ANSWERS:
                    # Every key that is not good is refused in the same words, whoever found out.
                    raise _invalid_key() if error.reason is Reason.KEY_INVALID else error from None
            else:
                self.maintenance.update(answer)
                principal = _principal(answer.principal)
                if self._principal_cache.put(digest, principal, answer.epoch, asked_at_s, once_only=answer.once_only):
                    return principal
        raise unavailable(NAME)

    def _look_at_running(self, heartbeat: pb.WatchResponse) -> None:
        if heartbeat.forget_all:
            self._running_keys.recheck_all()
        self._running_keys.refuse(heartbeat.refused_key_ids)


def _api_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    api_key = b""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer" and (given := token.strip()):
                api_key = given
                break
        elif name == b"x-api-key":
            api_key = value.strip()
    if not api_key:
        raise LegatoError(
            Reason.KEY_INVALID, "No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
        )
    if len(api_key) > LONGEST_KEY or not api_key.isascii():
        raise _invalid_key()
    return api_key


def _invalid_key() -> LegatoError:
    return LegatoError(Reason.KEY_INVALID, "The API key is not valid.")


def _principal(principal: pb.Principal) -> Principal:
    expires = principal.expire_time.ToMicroseconds() / 1e6 if principal.HasField("expire_time") else None
    return Principal(
        account_id=principal.account_id,
        key_id=principal.key_id,
        scopes=frozenset(principal.scopes),
        expires_at_s=expires,
        preferred_class=principal.preferred_class,
        requests_per_minute=principal.requests_per_minute if principal.HasField("requests_per_minute") else None,
        digest_key=principal.digest_key,
        tokens_per_minute=principal.tokens_per_minute if principal.HasField("tokens_per_minute") else None,
        concurrent_requests=principal.concurrent_requests if principal.HasField("concurrent_requests") else None,
        search=principal.search,
        memory=principal.memory,
        attachments=principal.attachments,
    )
