"""Shares that several metering processes keep in one Valkey, which may go away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import redis

from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.limits.model_shares import KEPT_S, LEARNING_S, ShareClaim
from services.metering.limits.rates import LocalLimiter
from services.metering.limits.valkey import ValkeyLimiter
from services.metering.limits.valkey_shares import KEY, ValkeyModelShares
from tests.services.metering.limits.valkey_link import Link
from tests.support.fakes import FakeClock
from tests.support.waiting import until

MODEL = "host/model"
LIMIT = 8


class Metering:
    """One replica, which was started long ago, and the routers that call it."""

    def __init__(self, limiter: ValkeyLimiter) -> None:
        self.limiter = limiter
        self.clock = FakeClock()
        self.shares = ValkeyModelShares(limiter, self.clock)
        self.sequence = 0

    async def renew(self, router: str, held: int, wanted: int) -> int:
        self.sequence += 1
        [renewed] = await self.shares.renew(router, self.sequence, [ShareClaim(MODEL, LIMIT, held, wanted)])
        return renewed.places


@asynccontextmanager
async def metering(url: str, log: Log) -> AsyncIterator[Metering]:
    limiter = ValkeyLimiter(url, LocalLimiter(SystemClock()), log)
    await limiter.start()
    yield Metering(limiter)
    await limiter.close()


@asynccontextmanager
async def two(url: str, log: Log) -> AsyncIterator[tuple[Metering, Metering]]:
    async with metering(url, log) as one, metering(url, log) as other:
        await until(lambda: one.limiter.replicas == other.limiter.replicas == 2)
        yield one, other


async def test_routers_of_several_metering_processes_never_hold_more_than_the_limit(valkey_url: str, log: Log) -> None:
    async with two(valkey_url, log) as meterings:
        held = dict.fromkeys("abcdef", 0)
        for turn in range(6):
            calls = [
                meterings[(number + turn) % 2].renew(router, held[router], 1 + number)
                for number, router in enumerate(held)
            ]
            held = dict(zip(held, await asyncio.gather(*calls), strict=True))
            assert sum(held.values()) <= LIMIT
        assert sum(held.values()) == LIMIT


async def test_router_that_was_killed_gives_back_whichever_process_it_called(valkey_url: str, log: Log) -> None:
    async with two(valkey_url, log) as (one, other):
        assert await one.renew("killed", 0, 8) == LIMIT
        assert await other.renew("lives", 0, 8) == 0
        with redis.Redis.from_url(valkey_url) as client:
            # As if its router had not called for so long, while others did.
            stored = msgspec.json.decode(client.get(KEY))
            stored["shares"][MODEL]["killed"]["kept_until_s"] -= KEPT_S
            client.set(KEY, msgspec.json.encode(stored))
        assert await other.renew("lives", 0, 8) == LIMIT


async def test_without_valkey_each_process_gives_its_part_of_the_limit(link: Link, log: Log) -> None:
    async with two(link.url, log) as (one, other):
        assert (await one.renew("a", 0, 3), await other.renew("b", 0, 3)) == (4, 4)
        link.cut()
        assert (await one.renew("a", 4, 8), await other.renew("b", 3, 8)) == (4, 3)
        for metering in (one, other):
            metering.clock.advance(LEARNING_S)
        assert (await other.renew("b", 3, 8), await other.renew("c", 0, 8)) == (4, 0)
        # Two of its own are for the other one, which gets them when it knows.
        assert (await other.renew("b", 4, 8), await other.renew("b", 2, 8), await other.renew("c", 0, 8)) == (2, 2, 2)
        link.join()
        await until(lambda: one.limiter.is_shared and other.limiter.is_shared)
        # It did not see what they got without it.
        assert (await one.renew("a", 4, 8), await other.renew("b", 2, 8), await other.renew("c", 2, 8)) == (4, 2, 2)


async def test_valkey_that_lost_its_memory_is_told_what_routers_hold(valkey_url: str, log: Log) -> None:
    async with metering(valkey_url, log) as one:
        assert await one.renew("a", 0, 8) == LIMIT
        with redis.Redis.from_url(valkey_url) as client:
            client.delete(KEY)
        assert await one.renew("b", 0, 8) == 0
        assert await one.renew("a", 2, 2) == 2
        assert await one.renew("b", 0, 8) == 6
