"""Who asks. Principals are remembered, and forgotten in time.

Asking the auth service about every request would cost more than the rest of it. So the edge remembers whom it has
verified, and a watch keeps that memory true: the edge pings, auth answers with an epoch that it read from its database
after the ping had arrived, and for `LEASE_S` from when that ping was sent the memory counts. Outside of the lease every
request is verified by itself. docs/revocation.md tells the whole of it.
"""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from protos.auth.v1 import auth_pb2 as pb
from services.chassis.channel import errors_of
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.log import Log

if TYPE_CHECKING:
    from protos.auth.v1.auth_pb2_grpc import AuthServiceAsyncStub

LEASE_S = 0.8
PING_EVERY_S = 0.2
VERIFY_TIMEOUT_S = 0.5
VERIFY_ATTEMPTS = 3
REMEMBERED = 100_000
# Longer than any key of ours; more is not worth a look.
LONGEST_KEY = 200

Scope = pb.Scope


@dataclass(frozen=True, slots=True)
class Principal:
    account_id: str
    key_id: str
    # None of them means all of them.
    scopes: frozenset["pb.Scope.ValueType"]
    # Seconds since 1970; None: never.
    expires_at_s: float | None
    preferred_class: str
    requests_per_minute: int | None
    # For digests of what the account says and nobody may keep.
    digest_key: bytes = field(repr=False)
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def require(self, scope: "pb.Scope.ValueType") -> None:
        if self.scopes and scope not in self.scopes:
            name = pb.Scope.Name(scope).removeprefix("SCOPE_").lower()
            raise LegatoError(Reason.SCOPE_MISSING, f"This API key lacks the scope needed here: {name}.")


@dataclass(frozen=True, slots=True)
class _Remembered:
    principal: Principal
    epoch: int


class Principals:
    def __init__(self, auth: "AuthServiceAsyncStub", clock: Clock, log: Log) -> None:
        self._auth = auth
        self._clock = clock
        self._log = log
        self._epoch = 0
        self._lease_from_s = float("-inf")
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._digest_by_key_id: dict[str, bytes] = {}
        self._ping_sent_at_s: dict[int, float] = {}
        self._last_ping_no = 0
        self._heard = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watcher = asyncio.create_task(self._keep_watching())

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def known(self) -> None:
        """Returns when auth has answered for the first time."""
        await self._heard.wait()

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        api_key = _api_key(headers)
        digest = hashlib.sha256(api_key).digest()
        remembered = self._remembered.get(digest)
        if remembered is not None and self._clock.elapsed_s() - self._lease_from_s < LEASE_S:
            principal = remembered.principal
        else:
            principal = await self._verify(api_key, digest)
        if principal.expires_at_s is not None and self._clock.now().timestamp() >= principal.expires_at_s:
            raise _invalid_key()
        return principal

    async def _verify(self, api_key: bytes, digest: bytes) -> Principal:
        for _ in range(VERIFY_ATTEMPTS):
            asked_at_s = self._clock.elapsed_s()
            answer = await self._ask(api_key)
            # An answer that took long, or that was read before a change we have already heard of, may be about a key
            # that is no longer good.
            if self._clock.elapsed_s() - asked_at_s < LEASE_S and answer.epoch >= self._epoch:
                principal = _principal(answer.principal)
                self._remember(digest, principal, answer.epoch)
                return principal
        raise unavailable("Authentication")

    async def _ask(self, api_key: bytes) -> pb.VerifyResponse:
        try:
            with errors_of("Authentication"):
                return await self._auth.Verify(
                    pb.VerifyRequest(api_key=api_key.decode("ascii")), timeout=VERIFY_TIMEOUT_S, wait_for_ready=True
                )
        except LegatoError as error:
            # Every key that is not good is refused in the same words, whoever found out.
            raise _invalid_key() if error.reason is Reason.KEY_INVALID else error from None

    def _remember(self, digest: bytes, principal: Principal, epoch: int) -> None:
        self._remembered[digest] = _Remembered(principal, epoch)
        self._remembered.move_to_end(digest)
        self._digest_by_key_id[principal.key_id] = digest
        if len(self._remembered) > REMEMBERED:
            _, oldest = self._remembered.popitem(last=False)
            self._digest_by_key_id.pop(oldest.principal.key_id, None)

    async def _keep_watching(self) -> None:
        while True:
            stream = self._auth.Watch()
            pinger = asyncio.create_task(self._ping(stream))
            try:
                async for heartbeat in stream:
                    self._take(heartbeat)
            except grpc.RpcError:
                # The lease runs out by itself; until the watch is back every request is verified.
                pass
            except Exception as error:
                self._log.failure("watch.failed", error)
            finally:
                pinger.cancel()
                stream.cancel()
            await asyncio.sleep(PING_EVERY_S)

    async def _ping(self, stream: "grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]") -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                self._last_ping_no += 1
                self._ping_sent_at_s[self._last_ping_no] = self._clock.elapsed_s()
                await stream.write(pb.WatchRequest(ping_no=self._last_ping_no, epoch=self._epoch))
                await asyncio.sleep(PING_EVERY_S)

    def _take(self, heartbeat: pb.WatchResponse) -> None:
        """Forget first, then prolong: the lease may never cover what should be forgotten."""
        self._epoch = max(self._epoch, heartbeat.epoch)
        self._heard.set()
        if heartbeat.forget_all:
            for digest in [d for d, entry in self._remembered.items() if entry.epoch < heartbeat.epoch]:
                del self._remembered[digest]
        for key_id in heartbeat.changed_key_ids:
            changed = self._digest_by_key_id.get(key_id)
            if changed is not None and (entry := self._remembered.get(changed)) and entry.epoch < heartbeat.epoch:
                del self._remembered[changed]
        sent_at_s = self._ping_sent_at_s.get(heartbeat.echoed_ping_no)
        if sent_at_s is not None:
            self._lease_from_s = max(self._lease_from_s, sent_at_s)
            for ping_no in [number for number in self._ping_sent_at_s if number < heartbeat.echoed_ping_no]:
                del self._ping_sent_at_s[ping_no]


def _api_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    api_key = b""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                api_key = token.strip()
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
    )
