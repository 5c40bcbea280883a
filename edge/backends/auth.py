"""A client of the auth service: replicas, any of which may be dead, cut off or slow at any time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, errors_of
from services.chassis.rpc.replicas import Replicas
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock

if TYPE_CHECKING:
    from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceAsyncStub

NAME = "Authentication"
# A later answer is of no use: it is valid for 0.8 s from when the call was sent (`edge/access/principal_cache.py`).
ASK_TIMEOUT_S = 0.8
# Delay of a hedged request to another replica: a connection that stalls gives no error.
ASK_ANOTHER_AFTER_S = 0.1
# A replica whose watch was silent for longer is called last: it is pinged five times a second.
SILENT_AFTER_S = 0.5

# Auth's verdicts on a key or a caller. Any other error is no answer, and another replica may have one.
ANSWERS = (Reason.KEY_INVALID, Reason.ACCOUNT_SUSPENDED, Reason.CALLER_NOT_GRANTED)

AnswerT = TypeVar("AnswerT")
Verified = pb.VerifyResponse | pb.VerifyCallerResponse
WatchCall = grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]


class AuthReplica:
    """One process of auth, and the connection to it."""

    def __init__(self, address: str, clock: Clock, certificates: Certificates | None = None) -> None:
        self._clock = clock
        self._connection: ChannelHolder[AuthServiceAsyncStub] = ChannelHolder(
            address, "auth", AuthServiceStub, certificates
        )
        self._heard_at_s = float("-inf")
        self._running_calls = 0
        self.is_watched = False
        # On shutdown it ends its watches, and is called last from then on.
        self.is_leaving = False
        # When its last watch ended.
        self.left_at_s = float("-inf")

    @property
    def usable(self) -> bool:
        return self._clock.elapsed_s() - self._heard_at_s < SILENT_AFTER_S

    @property
    def load(self) -> int:
        return self._running_calls + self.is_watched

    async def close(self) -> None:
        await self._connection.close()

    async def reconnect(self) -> None:
        """Reopens the connection: one that stalls may never report an error."""
        await self._connection.reopen()

    async def ask(self, question: "Callable[[AuthServiceAsyncStub], Awaitable[AnswerT]]") -> AnswerT:
        self._running_calls += 1
        try:
            with errors_of(NAME):
                return await question(self._connection.stub)
        finally:
            self._running_calls -= 1

    @contextmanager
    def watched(self) -> Iterator[WatchCall]:
        self.is_watched = True
        stream = self._connection.stub.Watch()
        try:
            yield stream
        finally:
            # Otherwise auth would not notice the disconnect.
            stream.cancel()
            self.is_watched = False
            self.left_at_s = self._clock.elapsed_s()

    def heard(self) -> None:
        """Records a heartbeat."""
        self._heard_at_s = self._clock.elapsed_s()


class AuthClient:
    """Calls replicas until one answers."""

    def __init__(self, replicas: Replicas[AuthReplica]) -> None:
        self._replicas = replicas

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        request = pb.VerifyRequest(api_key=api_key, accepts_playground_tokens=True)
        return await self._call(lambda stub: stub.Verify(request, timeout=ASK_TIMEOUT_S, wait_for_ready=True))

    async def verify_caller(self, caller: str, account_id: str) -> pb.VerifyCallerResponse:
        request = pb.VerifyCallerRequest(caller=caller, account_id=account_id)
        return await self._call(lambda stub: stub.VerifyCaller(request, timeout=ASK_TIMEOUT_S, wait_for_ready=True))

    async def list_caller_keys(self, account_id: str) -> Sequence[pb.CallerKey]:
        request = pb.ListCallerKeysRequest(account_id=account_id)
        return (await self._call(lambda stub: stub.ListCallerKeys(request, timeout=ASK_TIMEOUT_S))).keys

    async def find_refused_keys(self, key_ids: Sequence[str]) -> Sequence[str]:
        request = pb.FindRefusedKeysRequest(key_ids=key_ids)
        return (await self._call(lambda stub: stub.FindRefusedKeys(request, timeout=ASK_TIMEOUT_S))).key_ids

    def unwatched(self) -> AuthReplica | None:
        """Returns the best replica that is not watched yet. Unresponsive replicas take turns, so that a lost one does
        not prevent the use of another."""
        others = [replica for replica in self._replicas.in_order() if not replica.is_watched]
        return min(others, key=lambda replica: (not replica.usable, replica.left_at_s), default=None)

    async def _call(self, question: "Callable[[AuthServiceAsyncStub], Awaitable[AnswerT]]") -> AnswerT:
        """Returns the first answer. A silent or lost replica does not delay the call to the next."""
        replicas = deque(self._replicas.in_order())
        asked: set[asyncio.Task[AnswerT]] = set()
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                while replicas or asked:
                    if replicas:
                        # Each call has its own task: a cancelled call cancels the task that awaits it.
                        asked.add(asyncio.create_task(replicas.popleft().ask(question)))
                    timeout_s = ASK_ANOTHER_AFTER_S if replicas else None
                    done, asked = await asyncio.wait(asked, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                    answered = [task for task in done if not _is_lost(task)]
                    if answered:
                        return answered[0].result()
        except TimeoutError:
            pass
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise unavailable(NAME)


def _is_lost(task: "asyncio.Task[object]") -> bool:
    """Returns whether there was no answer, rather than a refusal."""
    if task.cancelled():
        return True
    error = task.exception()
    return isinstance(error, LegatoError) and error.reason not in ANSWERS


Scope = pb.Scope


@dataclass(frozen=True, slots=True)
class Principal:
    account_id: str
    key_id: str
    # Empty means all scopes.
    scopes: frozenset["pb.Scope.ValueType"] = frozenset()
    # Seconds since 1970, by auth's clock; None if it never expires.
    expires_at_s: float | None = None
    preferred_class: str = ""
    requests_per_minute: int | None = None
    # The key of the account's digests, of content that may not be stored.
    digest_key: bytes = field(default=b"", repr=False)
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    # The grounding sources that the account allows for chats without tools.
    search: bool = False
    memory: bool = False
    attachments: bool = False
    # A playground token; empty: the key itself.
    token_id: str = ""
    # None: all classes.
    allowed_classes: frozenset[str] | None = None
    # The internal program that calls for the account; empty: a key was given.
    caller: str = ""

    @property
    def credential_id(self) -> str:
        """The id by which auth tells that this is no longer good: tokens of several sessions share a key."""
        return self.token_id or self.key_id

    def may_use(self, class_id: str) -> bool:
        return self.allowed_classes is None or class_id in self.allowed_classes

    def may(self, scope: "pb.Scope.ValueType") -> bool:
        return not self.scopes or scope in self.scopes

    def require(self, scope: "pb.Scope.ValueType") -> None:
        if self.scopes and scope not in self.scopes:
            name = pb.Scope.Name(scope).removeprefix("SCOPE_").lower()
            raise LegatoError(Reason.SCOPE_MISSING, Sentence("scope_missing", scope=name))
