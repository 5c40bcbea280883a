"""How many requests a key may make: GCRA, in memory or in Valkey.

Each key has one number, the moment at which its rate is whole again. A request moves it on by one interval, and is
refused if that would be further ahead than the burst allows. A refused request moves nothing. A moment that is further
ahead than the rate can have brought it comes from a slower one, which no longer counts: then the rate is whole.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason

ReplyT = TypeVar("ReplyT")

MINUTE_US: Final = 60_000_000
# Beyond it intervals of whole microseconds would be too coarse.
LARGEST_RATE: Final = 1_000_000

# A burst of an override: what it allows in four seconds.
BURSTS_A_MINUTE: Final = 15

_FEWEST_KEPT: Final = 1024


class Rate(msgspec.Struct, frozen=True):
    requests_per_minute: int
    burst: int

    @property
    def interval_us(self) -> int:
        # Rounded up: never more than the limit.
        return -(-MINUTE_US // self.requests_per_minute)


def override(requests_per_minute: int) -> Rate:
    return Rate(requests_per_minute, max(1, requests_per_minute // BURSTS_A_MINUTE))


class Allowance(msgspec.Struct, frozen=True):
    limit_requests: int
    remaining_requests: int
    reset_requests_ms: int


class Limiter(Protocol):
    def admit(self, key_id: str, rate: Rate, reply: Callable[[Allowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        """Resolves to what `reply` makes of the allowance. Refuses, at once or later, with RATE_LIMITED."""
        ...


class LocalLimiter:
    """Forgets keys whose rate is whole again, so that it holds no more than those that are in use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._whole_at_us: dict[str, int] = {}
        self._forget_at = _FEWEST_KEPT

    def admit(self, key_id: str, rate: Rate, reply: Callable[[Allowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        future.set_result(reply(self.take(key_id, rate)))
        return future

    def take(self, key_id: str, rate: Rate) -> Allowance:
        now_us = self._now_us()
        interval_us = rate.interval_us
        whole_at_us = self._whole_at_us.get(key_id, 0)
        if not now_us < whole_at_us <= now_us + rate.burst * interval_us:
            whole_at_us = now_us
        whole_at_us += interval_us
        wait_us = whole_at_us - rate.burst * interval_us - now_us
        if wait_us > 0:
            raise rate_limited(rate, wait_us)
        self._remember(key_id, whole_at_us, now_us)
        return allowance(rate, whole_at_us - now_us)

    def follow(self, key_id: str, whole_in_us: int) -> None:
        """Somebody else keeps this key's rate: know it as well, in case they go away."""
        now_us = self._now_us()
        self._remember(key_id, now_us + whole_in_us, now_us)

    def __len__(self) -> int:
        return len(self._whole_at_us)

    def _remember(self, key_id: str, whole_at_us: int, now_us: int) -> None:
        self._whole_at_us[key_id] = whole_at_us
        if len(self._whole_at_us) > self._forget_at:
            self._whole_at_us = {key: at_us for key, at_us in self._whole_at_us.items() if at_us > now_us}
            # Twice what is in use: going through all of them costs next to nothing a request.
            self._forget_at = max(_FEWEST_KEPT, 2 * len(self._whole_at_us))

    def _now_us(self) -> int:
        return round(self._clock.elapsed_s() * 1_000_000)


def allowance(rate: Rate, whole_in_us: int) -> Allowance:
    used = -(-whole_in_us // rate.interval_us)
    return Allowance(rate.requests_per_minute, max(0, rate.burst - used), -(-whole_in_us // 1000))


def rate_limited(rate: Rate, wait_us: int) -> LegatoError:
    # In whole milliseconds, rounded up: who comes back then is let in.
    retry_after_s = math.ceil(wait_us / 1000) / 1000
    message = "Too many requests with this key. Please retry after a short wait."
    whole_in_us = wait_us + (rate.burst - 1) * rate.interval_us
    figures = {
        "limit_requests": rate.requests_per_minute,
        "remaining_requests": 0,
        "reset_requests_ms": -(-whole_in_us // 1000),
    }
    return LegatoError(Reason.RATE_LIMITED, message, retry_after_s=retry_after_s, figures=figures)
