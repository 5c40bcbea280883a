"""The auth service as the edge asks it: replicas, any of which may be dead, cut off or slow at any time."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from protos.auth.v1 import auth_pb2 as pb
from protos.auth.v1.auth_pb2_grpc import AuthServiceStub
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.channel_holder import ChannelHolder
from services.chassis.rpc.replicas import Replicas
from services.chassis.timing.clock import Clock

if TYPE_CHECKING:
    from protos.auth.v1.auth_pb2_grpc import AuthServiceAsyncStub

NAME = "Authentication"
# A later answer is of no use: it counts for 0.8 s from when it was asked for (`edge/access/principal_cache.py`).
ASK_TIMEOUT_S = 0.8
# Where one replica has not answered within this, another is asked as well: a connection that stalls gives no error.
ASK_ANOTHER_AFTER_S = 0.1
# A replica whose watch was silent for longer is asked last: it is pinged five times a second.
SILENT_AFTER_S = 0.5

# What auth says about a key. Anything else is no answer, and another replica may have one.
ANSWERS = (Reason.KEY_INVALID, Reason.ACCOUNT_SUSPENDED)

AnswerT = TypeVar("AnswerT")
WatchCall = grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]


class AuthReplica:
    """One process of auth, and the connection with it."""

    def __init__(self, address: str, clock: Clock, certificates: Certificates | None = None) -> None:
        self._clock = clock
        self._connection: ChannelHolder[AuthServiceAsyncStub] = ChannelHolder(
            address, "auth", AuthServiceStub, certificates
        )
        self._heard_at_s = float("-inf")
        self._running_calls = 0
        self.is_watched = False
        # When its last watch came to an end.
        self.left_at_s = float("-inf")

    @property
    def usable(self) -> bool:
        return self._clock.elapsed_s() - self._heard_at_s < SILENT_AFTER_S

    @property
    def is_leaving(self) -> bool:
        # It ends its watches when it is asked to end, and is asked last from then on.
        return False

    @property
    def load(self) -> int:
        return self._running_calls + self.is_watched

    async def close(self) -> None:
        await self._connection.close()

    async def reconnect(self) -> None:
        """A connection on which nothing comes through may never say that it is broken."""
        await self._connection.reopen()

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        with self._call():
            return await self._connection.stub.Verify(
                pb.VerifyRequest(api_key=api_key), timeout=ASK_TIMEOUT_S, wait_for_ready=True
            )

    async def find_refused_keys(self, key_ids: Sequence[str]) -> Sequence[str]:
        with self._call():
            request = pb.FindRefusedKeysRequest(key_ids=key_ids)
            return (await self._connection.stub.FindRefusedKeys(request, timeout=ASK_TIMEOUT_S)).key_ids

    @contextmanager
    def watched(self) -> Iterator[WatchCall]:
        self.is_watched = True
        stream = self._connection.stub.Watch()
        try:
            yield stream
        finally:
            # Without it the other side would never learn that we left.
            stream.cancel()
            self.is_watched = False
            self.left_at_s = self._clock.elapsed_s()

    def heard(self) -> None:
        """A heartbeat came."""
        self._heard_at_s = self._clock.elapsed_s()

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._running_calls += 1
        try:
            with errors_of(NAME):
                yield
        finally:
            self._running_calls -= 1


class AuthClient:
    """Whichever of its replicas answers."""

    def __init__(self, replicas: Replicas[AuthReplica]) -> None:
        self._replicas = replicas

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        return await self._call(lambda replica: replica.verify(api_key))

    async def find_refused_keys(self, key_ids: Sequence[str]) -> Sequence[str]:
        return await self._call(lambda replica: replica.find_refused_keys(key_ids))

    def unwatched(self) -> AuthReplica | None:
        """The best replica that nobody watches yet. Those from which nothing was heard have their turn one after the
        other: one that is gone must not keep us from one that is there."""
        others = [replica for replica in self._replicas.in_order() if not replica.is_watched]
        return min(others, key=lambda replica: (not replica.usable, replica.left_at_s), default=None)

    async def _call(self, question: Callable[[AuthReplica], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """The first answer counts. Who is silent or lost does not keep the next from being asked."""
        replicas = deque(self._replicas.in_order())
        asked: set[asyncio.Task[AnswerT]] = set()
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                while replicas or asked:
                    if replicas:
                        # A task of its own: a call that is broken off cancels whoever waits for it.
                        asked.add(asyncio.create_task(question(replicas.popleft())))
                    patience_s = ASK_ANOTHER_AFTER_S if replicas else None
                    done, asked = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
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


def _is_lost(task: "asyncio.Task[Any]") -> bool:
    """Whether there was no answer, rather than a refusal."""
    if task.cancelled():
        return True
    error = task.exception()
    return isinstance(error, LegatoError) and error.reason not in ANSWERS
