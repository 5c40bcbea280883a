"""Shares of models' limits that all replicas of metering keep together, in Valkey or Redis."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import RedisError

from services.chassis.errors import unavailable
from services.chassis.timing.deadlines import Clock
from services.metering.limits.model_shares import LocalModelShares, ModelShares, RenewedShare, ShareClaim
from services.metering.limits.valkey import ValkeyLimiter, in_time

KEY: Final = "legato:model-shares"
# While other replicas renew.
ATTEMPTS: Final = 20

_REPLACE: Final = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class ValkeyModelShares:
    """While the server is away, each replica gives out its part of every limit, to the routers that call it."""

    def __init__(self, limiter: ValkeyLimiter, clock: Clock) -> None:
        """Uses the limiter's connections, and its count of replicas."""
        self._limiter = limiter
        self._clock = clock
        self._turn = asyncio.Lock()
        # What the server has stored at last, for one that loses its memory.
        self._copy = ModelShares.starting_at(clock.now().timestamp())
        self._own_part: LocalModelShares | None = None

    async def renew(self, router_id: str, sequence: int, claims: Sequence[ShareClaim]) -> list[RenewedShare]:
        async with self._turn:
            if self._limiter.is_shared:
                try:
                    renewed = await self._renew(router_id, sequence, claims)
                except (RedisError, OSError) as error:
                    self._limiter.fall_back(error)
                else:
                    self._own_part = None
                    return renewed
        if self._own_part is None:
            self._own_part = LocalModelShares(self._clock)
        replicas = self._limiter.replicas
        parts = [claim._replace(limit=max(1, claim.limit // replicas)) for claim in claims]
        return await self._own_part.renew(router_id, sequence, parts)

    async def _renew(self, router_id: str, sequence: int, claims: Sequence[ShareClaim]) -> list[RenewedShare]:
        for _ in range(ATTEMPTS):
            pipeline: Any = self._limiter.client.pipeline(transaction=False)
            stored, (seconds, microseconds) = await in_time(pipeline.get(KEY).time().execute())
            shares = msgspec.json.decode(stored or msgspec.json.encode(self._copy), type=ModelShares)
            now_s = seconds + microseconds / 1e6
            if self._own_part is not None:
                shares.learning_since_s = now_s
            renewed = shares.renew(router_id, sequence, claims, now_s)
            text = msgspec.json.encode(shares).decode()
            if await in_time(self._limiter.client.eval(_REPLACE, 1, KEY, stored or "", text)):
                self._copy = shares
                return renewed
        raise unavailable("Metering")
