"""Leases shares of models' limits from metering, so that a limit is one of all routers together
(docs/decisions/0093-one-limit-for-all-routers.md)."""

import asyncio
import contextlib
import math
from typing import Final
from uuid import uuid4

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.admission import Gate
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.router.models.share import CALLS_EVERY_S, RouterShare

# Of each replica that is asked.
TIMEOUT_S: Final = 2.0
FAREWELL_S: Final = 0.5
# At least so long between two calls.
CALLS_APART_S: Final = 0.02
# A router without a lease so long after its start has a wrong address or certificate.
FIRST_LEASE_S: Final = 5.0


class FleetLimits:
    """The shares of this router, by the names of their limits."""

    def __init__(self, clock: Clock, log: Log, metering: ReplicaChannel | None = None, instance: str = "") -> None:
        """Leases from `metering`; without it each limit is this router's alone. `instance` names where this process
        runs: one that ran there before has ended."""
        self._clock = clock
        self._log = log
        self._metering = metering
        self._stub = None if metering is None else ModelShareServiceStub(metering.channel)
        self._instance = instance
        self._holder_id = uuid4().hex
        self._start_time = Timestamp()
        self._start_time.FromDatetime(clock.now())
        self._sequence = 0
        self._shares: dict[str, RouterShare] = {}
        self._began_s = clock.elapsed_s()
        self._until_s = -math.inf
        self._is_alone = metering is None
        self._calls_every_s = CALLS_EVERY_S
        self._wake = asyncio.Event()
        # Done when the next call to begin has ended.
        self._answered: asyncio.Future[None] | None = None

    def share_of(self, name: str, limit: int, gate: Gate) -> RouterShare:
        """Returns the share that the chats of a gate use from now on."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = RouterShare(name, limit, self._clock, self._ask)
            share.is_alone = self._is_alone
        share.use(limit, gate)
        self._wake.set()
        return share

    async def run(self) -> None:
        """Renews until it is cancelled. Without a model that has a limit, it does nothing."""
        if self._metering is None:
            return
        await self._wake.wait()
        await self._metering.start()
        while True:
            is_used = any(share.is_used for share in self._shares.values())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._calls_every_s if is_used else None)
            self._wake.clear()
            answered, self._answered = self._answered, None
            try:
                await self._renew(TIMEOUT_S)
            except Exception as error:
                self._log.failure("limits.failed", error)
            finally:
                if answered is not None:
                    answered.set_result(None)
            await asyncio.sleep(CALLS_APART_S)

    async def close(self) -> None:
        """Returns all places, once no chat runs and `run` is cancelled."""
        if self._metering is None:
            return
        for share in self._shares.values():
            share.close()
        if self._until_s > self._clock.elapsed_s():
            await self._renew(FAREWELL_S)
        await self._metering.close()

    async def _ask(self) -> None:
        if self._stub is None:
            return
        if self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
        self._wake.set()
        # Other chats wait for it, too.
        await asyncio.shield(self._answered)

    async def _renew(self, timeout_s: float) -> None:
        claims = {name: share.claim() for name, share in self._shares.items() if share.is_used}
        if self._stub is None or not claims:
            return
        self._sequence += 1
        sent_s = self._clock.elapsed_s()
        request = pb.RenewSharesRequest(
            holder_id=self._holder_id,
            instance=self._instance,
            start_time=self._start_time,
            sequence=self._sequence,
            claims=claims.values(),
        )
        try:
            response = await self._stub.RenewShares(request, timeout=timeout_s)
        except LegatoError as error:
            self._note_failure(error)
            return
        self._until_s = sent_s + response.lease.ToMilliseconds() / 1000
        self._calls_every_s = response.call_again_after.ToMilliseconds() / 1000
        self._set_alone(False)
        for answer in response.shares:
            share = self._shares[answer.limit_name]
            share.renew(
                claims[answer.limit_name],
                answer.places,
                self._until_s,
                self._calls_every_s,
                is_contended=answer.is_contended,
            )

    def _note_failure(self, error: LegatoError) -> None:
        """Keeps the limits to itself if metering cannot be asked at all: it is of an older release, or its address or
        our certificate is wrong. No edge sends chats while it is merely away."""
        now_s = self._clock.elapsed_s()
        is_refused = error.reason is not Reason.UNAVAILABLE and now_s >= self._until_s
        has_no_lease = self._until_s == -math.inf and now_s >= self._began_s + FIRST_LEASE_S
        if is_refused or has_no_lease:
            self._set_alone(True, error.message)

    def _set_alone(self, is_alone: bool, reason: str = "") -> None:
        if is_alone and not self._is_alone:
            self._log.warning("limits.not_shared", reason=reason)
        self._is_alone = is_alone
        for share in self._shares.values():
            share.is_alone = is_alone
