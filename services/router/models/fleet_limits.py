"""Renews shares of models' limits from metering, so that a limit is one of all routers together
(docs/decisions/0116-shares-of-model-limits-beside-the-rate-limits.md)."""

import asyncio
import math
from typing import Final
from uuid import uuid4

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceStub
from services.chassis.errors import LegatoError
from services.chassis.load.admission import Gate
from services.chassis.process.passes import run_passes
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.router.models.share import CALLS_EVERY_S, RouterShare

# A share is used for so long after the call was sent. Metering keeps it for longer.
LEASE_S: Final = 5.0
# Of each replica that is asked.
TIMEOUT_S: Final = 2.0
FAREWELL_S: Final = 0.5
# At least so long between two calls.
CALLS_APART_S: Final = 0.02
# A router without an answer so long after its start has a wrong address or certificate, or an older metering.
FIRST_ANSWER_S: Final = 5.0


class FleetLimits:
    """The shares of this router, by the names of their limits."""

    def __init__(self, clock: Clock, log: Log, metering: ReplicaChannel | None = None) -> None:
        """Asks `metering`; without it, each limit is this router's alone."""
        self._clock = clock
        self._log = log
        self._metering = metering
        self._stub = None if metering is None else ModelShareServiceStub(metering.channel)
        self._router_id = uuid4().hex
        self._sequence = 0
        self._shares: dict[str, RouterShare] = {}
        self._began_s = clock.elapsed_s()
        self._called_s = self._until_s = -math.inf
        self._is_alone = metering is None
        self._has_limits = asyncio.Event()
        self._turn = asyncio.Lock()

    def share_of(self, name: str, limit: int, gate: Gate) -> RouterShare:
        """Returns the share that the chats of a gate use from now on."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = RouterShare(name, self._clock, self._ask, is_alone=self._is_alone)
        share.use(limit, gate)
        self._has_limits.set()
        return share

    async def run(self) -> None:
        """Renews until it is cancelled. Without a model that has a limit, it does nothing."""
        if self._metering is None:
            return
        await self._has_limits.wait()
        await self._metering.start()
        await run_passes(self._ask, CALLS_EVERY_S, self._log, "limits.failed")

    async def close(self) -> None:
        """Returns all places, once no chat runs and `run` is cancelled."""
        if self._metering is None:
            return
        for share in self._shares.values():
            share.give_back()
        if self._until_s > self._clock.elapsed_s():
            await self._renew(FAREWELL_S)
        await self._metering.close()

    async def _ask(self) -> None:
        """Returns when a call has been answered, or has failed, that began later."""
        next_call = self._sequence + 1
        async with self._turn:
            if self._sequence < next_call:
                await asyncio.sleep(self._called_s + CALLS_APART_S - self._clock.elapsed_s())
                await self._renew(TIMEOUT_S)

    async def _renew(self, timeout_s: float) -> None:
        claims = [claim for share in self._shares.values() if (claim := share.claim()) is not None]
        if self._stub is None or not claims:
            return
        self._sequence += 1
        self._called_s = self._clock.elapsed_s()
        request = pb.RenewSharesRequest(router_id=self._router_id, sequence=self._sequence, claims=claims)
        try:
            response = await self._stub.RenewShares(request, timeout=timeout_s)
        except LegatoError as error:
            # While metering is merely away, no edge sends chats.
            if self._until_s == -math.inf and self._clock.elapsed_s() >= self._began_s + FIRST_ANSWER_S:
                self._set_alone(True, error.message)
            return
        self._set_alone(False)
        self._until_s = self._called_s + LEASE_S
        for renewed in response.shares:
            share = self._shares[renewed.limit_name]
            share.renew(renewed.places, self._until_s, is_contended=renewed.is_contended)

    def _set_alone(self, is_alone: bool, reason: str = "") -> None:
        if is_alone and not self._is_alone:
            self._log.warning("limits.not_shared", reason=reason)
        self._is_alone = is_alone
        for share in self._shares.values():
            share.set_alone(is_alone)
