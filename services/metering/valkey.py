"""Limits that all replicas share, in Valkey or Redis.

One script call takes for every request that gathered while the last call was under way, on the server's own clock. When
the server is away, each replica limits by itself: never unlimited, never down.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from services.chassis.clock import Clock
from services.chassis.errors import LegatoError
from services.chassis.log import Log
from services.metering.limits import Allowance, LocalLimiter, Rate, ReplyT, allowance, rate_limited

TIMEOUT_S: Final = 0.25
# How long to do without the server before it is tried again.
AWAY_S: Final = 1.0

CALL_MOST: Final = 256

# For each key: how long until its rate is whole again, or, below zero, how long it has to wait.
_TAKE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = {}
for i, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local whole_at = tonumber(redis.call('GET', key) or 0)
  if whole_at < now or whole_at > now + burst * interval then
    whole_at = now
  end
  whole_at = whole_at + interval
  local wait = whole_at - burst * interval - now
  if wait > 0 then
    results[i] = -wait
  else
    redis.call('SET', key, string.format('%.0f', whole_at), 'PX', math.ceil((whole_at - now) / 1000))
    results[i] = whole_at - now
  end
end
return results
"""


class _Waiting(NamedTuple):
    key_id: str
    rate: Rate
    reply: Callable[[Allowance], Any]
    future: "asyncio.Future[Any]"


class ValkeyLimiter:
    def __init__(self, url: str, local: LocalLimiter, clock: Clock, log: Log) -> None:
        self._client = redis.asyncio.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            # A call that got no answer may have counted: trying it again could count it twice.
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        self._local = local
        self._clock = clock
        self._log = log
        self._waiting: deque[_Waiting] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        # None while the server answers.
        self._try_again_at_s: float | None = None

    def admit(self, key_id: str, rate: Rate, reply: Callable[[Allowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        if self._try_again_at_s is not None:
            # Nobody waits for a server that is away: it is tried beside the requests.
            if self._probe is None and self._clock.elapsed_s() >= self._try_again_at_s:
                self._probe = asyncio.create_task(self._try_again())
            return self._local.admit(key_id, rate, reply)
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(key_id, rate, reply, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._take_all())
        return future

    async def close(self) -> None:
        for task in (self._drain, self._probe):
            if task is not None:
                await task
        await self._client.aclose()

    async def _take_all(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(CALL_MOST, len(self._waiting)))]
                try:
                    whole_in_us = await self._ask(batch)
                except (RedisError, OSError) as error:
                    self._go_away(error)
                    self._take_locally(batch)
                else:
                    self._resolve(batch, whole_in_us)
        finally:
            self._drain = None

    async def _try_again(self) -> None:
        try:
            await self._ask([])
        except (RedisError, OSError) as error:
            self._go_away(error)
        else:
            self._log.info("limits.shared")
            self._try_again_at_s = None
        finally:
            self._probe = None

    async def _ask(self, batch: list[_Waiting]) -> list[int]:
        keys = [f"legato:rate:{waiting.key_id}" for waiting in batch]
        terms = [str(term) for waiting in batch for term in (waiting.rate.interval_us, waiting.rate.burst)]
        return await self._client.eval(_TAKE, len(keys), *keys, *terms)  # type: ignore[no-any-return]

    def _resolve(self, batch: list[_Waiting], results: list[int]) -> None:
        for waiting, whole_in_us in zip(batch, results, strict=True):
            if whole_in_us >= 0:
                self._local.follow(waiting.key_id, whole_in_us)
            if waiting.future.done():
                continue
            if whole_in_us < 0:
                waiting.future.set_exception(rate_limited(waiting.rate, -whole_in_us))
            else:
                waiting.future.set_result(waiting.reply(allowance(waiting.rate, whole_in_us)))

    def _take_locally(self, batch: list[_Waiting]) -> None:
        for waiting in batch:
            if waiting.future.done():
                continue
            try:
                waiting.future.set_result(waiting.reply(self._local.take(waiting.key_id, waiting.rate)))
            except LegatoError as refusal:
                waiting.future.set_exception(refusal)

    def _go_away(self, error: Exception) -> None:
        if self._try_again_at_s is None:
            self._log.failure("limits.local", error)
        self._try_again_at_s = self._clock.elapsed_s() + AWAY_S
