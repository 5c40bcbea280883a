"""Rate limits that all replicas share, in Valkey or Redis.

Charges that arrive during a script call share the next one, on the server's own clock. If the server is unavailable,
each replica falls back to its share of every limit: never unlimited, never down.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from services.chassis.errors import LegatoError
from services.chassis.load.gcra import LONGEST_DEBT_NS
from services.chassis.rpc.replicas import parse_endpoints, resolve
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.metering.limits.rates import (
    LocalLimiter,
    RateAllowance,
    RateCharge,
    ReplyT,
    allowance,
    refuse_if_used_up,
)

FoundT = TypeVar("FoundT")

# The timeout, as a number of short waits: if this process or the machine stalls, a stall consumes only one of them.
LOOKS: Final = 5
LOOK_S: Final = 0.05


def make_client(url: str) -> redis.asyncio.Redis:
    try:
        client = redis.asyncio.Redis.from_url(
            url,
            # Timed out by `in_time`, which does not take our own stall for the server's silence.
            socket_timeout=None,
            socket_connect_timeout=None,
            # A call without an answer may have counted: a retry could count it twice.
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        # Unknown options are detected only here. It does not connect.
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        # Not quoted: the malformed part may be a password.
        raise SettingsError("LEGATO_VALKEY_URL must be a redis://, rediss:// or unix:// URL") from None
    return client


async def in_time(asked: Awaitable[FoundT]) -> FoundT:
    call = asyncio.ensure_future(asked)
    for _ in range(LOOKS):
        done, _ = await asyncio.wait((call,), timeout=LOOK_S)
        if done:
            return call.result()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await call
    raise TimeoutError


# Interval of a replica's heartbeats, and of retries when the server is unavailable.
HEARTBEAT_EVERY_S: Final = 0.5
# A replica without a heartbeat for this long has ended.
HEARTBEAT_LIFE_S: Final = 5

CALL_MOST: Final = 256

_REPLICAS_KEY: Final = "legato:metering-replicas"

# The algorithm of `services/chassis/load/gcra.py`. Arguments of each charge: whether it can be refused, the number of
# parts, and of each part the interval, the burst and the units. Results of each charge: whether it was taken, and how
# far ahead each bucket is. Lua has only doubles, too small for a time in nanoseconds: so buckets are stored as seconds
# and nanoseconds.
_TAKE: Final = """
local debt_most = tonumber(ARGV[1])
local time = redis.call('TIME')
local now_s, now_ns = tonumber(time[1]), time[2] * 1000
local results = {}
local arguments, buckets = 1, 0

local function next_argument()
  arguments = arguments + 1
  return tonumber(ARGV[arguments])
end

local function ahead_of(bucket)
  local s, ns = string.match(redis.call('GET', bucket) or '', '^(%d+) (%d+)$')
  return s and math.max(0, (s - now_s) * 1e9 + ns - now_ns) or 0
end

local function put(bucket, ahead)
  if ahead == 0 then
    redis.call('DEL', bucket)
  else
    local ns = now_ns + ahead
    local s = math.floor(ns / 1e9)
    local moment = string.format('%.0f %.0f', now_s + s, ns - s * 1e9)
    redis.call('SET', bucket, moment, 'PX', math.ceil(ahead / 1e6))
  end
end

while arguments < #ARGV do
  local is_refusable, parts_count = next_argument() == 1, next_argument()
  local parts, is_taken = {}, 1
  for i = 1, parts_count do
    buckets = buckets + 1
    local part = {bucket = KEYS[buckets], interval = next_argument(), burst = next_argument(), units = next_argument()}
    part.ahead = ahead_of(part.bucket)
    local left = (part.burst - math.min(part.units, part.burst)) * part.interval
    if is_refusable and part.units ~= 0 and part.ahead > left then
      is_taken = 0
    end
    parts[i] = part
  end
  table.insert(results, is_taken)
  for _, part in ipairs(parts) do
    if is_taken == 1 and part.units ~= 0 then
      local most = part.burst * part.interval + debt_most
      part.ahead = math.min(math.max(0, part.ahead + part.units * part.interval), most)
      put(part.bucket, part.ahead)
    end
    table.insert(results, part.ahead)
  end
end
return results
"""

# Records a replica's heartbeat, and returns how many replicas live.
_HEARTBEAT: Final = """
local now_s = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now_s, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_s - ARGV[2])
redis.call('EXPIRE', KEYS[1], 2 * ARGV[2])
return redis.call('ZCARD', KEYS[1])
"""


class _Waiting(NamedTuple):
    charge: RateCharge
    reply: Callable[[RateAllowance], object]
    future: "asyncio.Future[Any]"


class ValkeyLimiter:
    def __init__(self, url: str, local: LocalLimiter, log: Log, fewest_replicas: int = 1, peers: str = "") -> None:
        """Connects to `url`; `fewest_replicas` is assumed at least, even if the server never answers, and as many as
        the name `peers` then has addresses."""
        self.client = make_client(url)
        self._local = local
        self._log = log
        self._fewest_replicas = local.replicas = fewest_replicas
        self._peers = [endpoint.address for endpoint in parse_endpoints(peers)]
        self._replica_id = secrets.token_hex(8)
        self._waiting: deque[_Waiting] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._signing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_away = False

    @property
    def is_shared(self) -> bool:
        """Returns whether all replicas share the limits; False while each falls back to its own."""
        return not self._is_away

    @property
    def replicas(self) -> int:
        """Returns the number of replicas that share the limits, as far as it is known."""
        return self._local.replicas

    async def start(self) -> None:
        """Starts heartbeats; returns after the first query for the number of replicas."""
        await self._send_heartbeat()
        self._signing = asyncio.create_task(self._send_heartbeats())

    def charge(self, charge: RateCharge, reply: Callable[[RateAllowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        if self._is_away:
            # Requests never wait for an unavailable server: heartbeats retry it.
            return self._local.charge(charge, reply)
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(charge, reply, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._take_all())
        return future

    def fall_back(self, error: Exception) -> None:
        """Stops sharing until a heartbeat succeeds."""
        if not self._is_away:
            self._is_away = True
            self._log.failure("limits.local", error)

    async def close(self) -> None:
        if self._drain is not None:
            await self._drain
        if self._signing is not None:
            # Not cancelled: a call that completes at that moment would swallow the cancellation.
            self._closing.set()
            await self._signing
            with contextlib.suppress(RedisError, OSError):
                # The other replicas' shares grow at once.
                await in_time(self.client.zrem(_REPLICAS_KEY, self._replica_id))
        await self.client.aclose()

    async def _send_heartbeats(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_EVERY_S):
                    await self._closing.wait()
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        try:
            if self._is_away:
                # A server that answers but rejects writes was demoted: its address may lead to another by now.
                await in_time(self.client.connection_pool.disconnect(inuse_connections=False))
            replicas = await in_time(self.client.eval(_HEARTBEAT, 1, _REPLICAS_KEY, self._replica_id, HEARTBEAT_LIFE_S))
        except (RedisError, OSError) as error:
            self.fall_back(error)
            await self._count_peers()
            return
        # Kept during an outage: the other replicas are cut off as well, but still running.
        self._local.replicas = max(self._fewest_replicas, int(replicas))
        if self._is_away:
            self._is_away = False
            self._log.info("limits.shared")

    async def _count_peers(self) -> None:
        """Divides by more replicas if there are more than were known. Those that start or leave have no address."""
        if self._peers:
            with contextlib.suppress(OSError):
                addresses = {address for peer in self._peers for address in await resolve(peer)}
                self._local.replicas = max(self._local.replicas, len(addresses))

    async def _take_all(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(CALL_MOST, len(self._waiting)))]
                if self._is_away:
                    self._take_locally(batch)
                    continue
                try:
                    results = await self._run_script(batch)
                except (RedisError, OSError) as error:
                    self.fall_back(error)
                    self._take_locally(batch)
                else:
                    self._resolve(batch, results)
        finally:
            self._drain = None

    async def _run_script(self, batch: list[_Waiting]) -> list[int]:
        buckets: list[str] = []
        terms: list[int] = [LONGEST_DEBT_NS]
        for waiting in batch:
            parts, is_refusable = waiting.charge.parts, waiting.charge.is_refusable
            terms += (int(is_refusable), len(parts))
            for part in parts:
                buckets.append(part.bucket)
                terms += (part.rate.interval_ns, part.rate.burst, part.units)
        return await in_time(self.client.eval(_TAKE, len(buckets), *buckets, *terms))

    def _resolve(self, batch: list[_Waiting], results: list[int]) -> None:
        figures = iter(results)
        for charge, reply, future in batch:
            parts = charge.parts
            is_taken = next(figures)
            ahead_ns = [next(figures) for _ in parts]
            self._local.follow(parts, ahead_ns)
            if future.done():
                continue
            try:
                if not is_taken:
                    refuse_if_used_up(parts, ahead_ns)
                future.set_result(reply(allowance(parts, ahead_ns)))
            except LegatoError as refusal:
                future.set_exception(refusal)

    def _take_locally(self, batch: list[_Waiting]) -> None:
        for charge, reply, future in batch:
            try:
                left = self._local.charge_now(charge)
            except LegatoError as refusal:
                if not future.done():
                    future.set_exception(refusal)
            else:
                if not future.done():
                    future.set_result(reply(left))
