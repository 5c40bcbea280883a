"""Authenticates API keys, playground tokens and internal programs, with a cache that auth invalidates in time.

Asking the auth service about every request would cost more than the rest of it. So the edge caches verified principals,
and a watch keeps the cache valid: the edge pings, auth answers with an epoch that it read from its database after the
ping had arrived, and the cache may be used for 0.8 s from when that ping was sent. Outside of this lease every request
is verified by auth. docs/revocation.md explains it in full.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from edge.access.auth_watch import Watch
from edge.access.maintenance import MaintenanceMode
from edge.access.principal_cache import PrincipalCache
from edge.access.running_keys import RunningKey, RunningKeys
from edge.access.used_networks import UsedNetworks
from edge.access.wrong_keys import WrongKeyLimiter
from edge.backends.auth import NAME, AuthClient, AuthReplica, Principal, Scope, Verified
from edge.backends.outage_wait import OutageQueues, OutageWait, begin_request
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import HttpScope
from services.chassis.rpc.replicas import Replicas
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import Clock

# Longer than any key of ours; a longer one is invalid.
LONGEST_KEY = 200


class Principals:
    def __init__(
        self,
        replicas: Replicas[AuthReplica],
        clock: Clock,
        log: Log,
        registry: Registry,
        addresses: Addresses | None = None,
        wrong_keys_per_minute: int = 0,
        waits: OutageWait | None = None,
    ) -> None:
        """Finds the addresses of clients with `addresses`, and limits the wrong keys of each; 0 is no limit. Requests
        that cannot be verified wait in `waits`."""
        addresses = addresses or Addresses()
        self._addresses = addresses
        self._auth = AuthClient(replicas)
        self._clock = clock
        self._principal_cache = PrincipalCache(clock)
        self.maintenance = MaintenanceMode()
        self._running_keys = RunningKeys(self._auth.find_refused_keys)
        self._used_networks = UsedNetworks(addresses, clock)
        self.wrong_key_limiter = WrongKeyLimiter(wrong_keys_per_minute, addresses, clock)
        self._watch = Watch(
            self._auth, self._principal_cache, self._used_networks, self.maintenance, self._look_at_running, clock, log
        )
        # A busy machine, a restart of auth or a failover takes seconds; a client would rather wait than be refused.
        self._queues = OutageQueues(NAME, waits or OutageWait(), verifies_again=False)
        # Verifications under way, by the digest of the key, or of the caller and its account.
        self._verifying: dict[bytes, asyncio.Task[Principal]] = {}
        lag = "Age of this edge's view of key changes: seconds since the newest answered ping was sent."
        registry.gauge("auth_revocation_lag_seconds", lag, lambda: self._principal_cache.lag_s)
        maintenance = "1 during maintenance, while new chats are refused, otherwise 0."
        registry.gauge("legato_maintenance", maintenance, lambda: self.maintenance.is_on)

    def start(self) -> None:
        self._watch.start()

    async def close(self) -> None:
        await self._watch.close()
        await self._running_keys.close()
        for task in self._verifying.values():
            task.cancel()

    async def known(self) -> None:
        """Returns when auth has answered for the first time."""
        await self._watch.heard.wait()

    async def identify(self, scope: HttpScope, needed: "Scope.ValueType | None") -> Principal:
        """Authenticates the key and checks its scope; None needs no scope. Counts wrong keys by client address."""
        headers = scope["headers"]
        begin_request(scope, lambda: self.authenticate(headers), lambda: self._client_name(scope))
        try:
            principal = await self.authenticate(headers)
        except LegatoError as error:
            if error.reason is Reason.KEY_INVALID:
                self.wrong_key_limiter.count(scope)
            raise
        self._used_networks.record(principal, scope)
        if needed is not None:
            principal.require(needed)
        return principal

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        api_key = _api_key(headers)
        digest = hashlib.sha256(api_key).digest()
        return self._principal_cache.find(digest) or await self._verify_waiting(
            digest, lambda: self._auth.verify(api_key.decode("ascii"))
        )

    async def identify_caller(
        self, scope: HttpScope, caller: str, account_id: str, needed: "Scope.ValueType | None"
    ) -> Principal:
        """Returns the principal of an internal program that calls for an account, if it has a scope. Raises
        CALLER_NOT_GRANTED."""
        begin_request(scope, lambda: self._authenticate_caller(caller, account_id), lambda: f"{caller} {account_id}")
        principal = await self._authenticate_caller(caller, account_id)
        if needed is not None:
            principal.require(needed)
        return principal

    async def _authenticate_caller(self, caller: str, account_id: str) -> Principal:
        # No API key has this byte, and neither name a space.
        digest = hashlib.sha256(b"\xff" + f"{caller} {account_id}".encode()).digest()
        return self._principal_cache.find(digest) or await self._verify_waiting(
            digest, lambda: self._auth.verify_caller(caller, account_id)
        )

    async def list_callers(self, account_id: str) -> dict[str, str]:
        """Returns the internal programs that called for an account, by the keys that their requests are counted
        under."""
        return {key.key_id: key.caller for key in await self._auth.list_caller_keys(account_id)}

    def recall(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        """Returns the principal if it is cached, without a call."""
        try:
            return self._principal_cache.find(hashlib.sha256(_api_key(headers)).digest())
        except LegatoError:
            return None

    def track_key(self, principal: Principal) -> RunningKey:
        """Tracks a key while its answer runs, to notice that it is revoked."""
        credential_id = principal.credential_id
        running_key = self._running_keys.add(credential_id, is_caller=bool(principal.caller))
        if not self._principal_cache.knows(credential_id):
            # Auth may have named this key between its verification and now.
            self._running_keys.recheck([credential_id])
        return running_key

    def _client_name(self, scope: HttpScope) -> str:
        """Returns the address that a key comes from, which stands for its owner as long as auth is away; empty for
        loopback."""
        network = self._addresses.network_of(scope)
        return "" if network is None else f"address {network}"

    def _verify_waiting(self, digest: bytes, ask: Callable[[], Awaitable[Verified]]) -> Awaitable[Principal]:
        """Verifies, and waits while auth is away."""
        return self._queues.call(lambda: self._verify_together(digest, ask))

    async def _verify_together(self, digest: bytes, ask: Callable[[], Awaitable[Verified]]) -> Principal:
        """Shares one call among all requests that wait for the same principal: it keeps an edge that is busy, and so
        has lost its lease, from more load. An answer counts from when its call was sent."""
        if (principal := self._principal_cache.find(digest)) is not None:
            # Another request has verified it since this one began to wait.
            return principal
        task = self._verifying.get(digest)
        if task is None:
            self._verifying[digest] = task = asyncio.create_task(self._verify(digest, ask))
            task.add_done_callback(lambda task: self._end_verifying(digest, task))
        # The first caller may be cancelled before the answer.
        return await asyncio.shield(task)

    def _end_verifying(self, digest: bytes, task: "asyncio.Task[Principal]") -> None:
        del self._verifying[digest]
        if not task.cancelled():
            # Retrieved, in case that no caller is left to do so.
            task.exception()

    async def _verify(self, digest: bytes, ask: Callable[[], Awaitable[Verified]]) -> Principal:
        asked_at_s = self._clock.elapsed_s()
        try:
            answer = await ask()
        except LegatoError as error:
            # Every invalid key gets the same message, whether the edge or auth refused it.
            raise _invalid_key() if error.reason is Reason.KEY_INVALID else error from None
        self.maintenance.update(answer)
        principal = _principal(answer.principal)
        if not self._principal_cache.put(digest, principal, answer.epoch, asked_at_s, once_only=answer.once_only):
            # It is late, or of a replica that does not know yet what another has told.
            raise unavailable(NAME)
        return principal

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
        raise LegatoError(Reason.KEY_INVALID, Sentence("api_key_missing"))
    if len(api_key) > LONGEST_KEY or not api_key.isascii():
        raise _invalid_key()
    return api_key


def _invalid_key() -> LegatoError:
    return LegatoError(Reason.KEY_INVALID, Sentence("api_key_invalid"))


def _principal(principal: pb.Principal) -> Principal:
    given: dict[str, Any] = {field.name: value for field, value in principal.ListFields()}
    given |= {"scopes": frozenset(principal.scopes), "token_id": given.pop("credential_id", "")}
    if (expire_time := given.pop("expire_time", None)) is not None:
        given["expires_at_s"] = expire_time.ToMicroseconds() / 1e6
    if (allowed := given.get("allowed_classes")) is not None:
        given["allowed_classes"] = frozenset(allowed.class_ids)
    return Principal(**given)
