"""Limits a key's requests and tokens per minute, and its concurrent requests.

Requests and tokens are rate limits (`services/chassis/load/gcra.py`), kept in memory here or shared by all replicas in
Valkey. Both are charged in one step or neither is. Concurrent requests are counted from live holds: see `holds.py`. The
full description is docs/limits.md.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import asdict

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Buckets, Rate
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock

ReplyT = TypeVar("ReplyT")

# Small enough for the shared limiter's arithmetic to be exact, however slow the rate.
LARGEST_BURST: Final = 100_000

# The burst of a request override: what its rate allows in four seconds.
BURSTS_A_MINUTE: Final = 15

# Names of a charge's parts.
_NAMES: Final = ("requests", "tokens")


class RateLimits(msgspec.Struct, frozen=True):
    requests: Rate
    # None: unlimited.
    tokens: Rate | None = None
    concurrent_requests: int | None = None


# The same few overrides come with every request.
@lru_cache(1024)
def request_rate(requests_per_minute: int) -> Rate:
    """Returns the rate of an override, with a burst derived from it."""
    return Rate(requests_per_minute, max(1, requests_per_minute // BURSTS_A_MINUTE))


@lru_cache(1024)
def token_rate(tokens_per_minute: int) -> Rate:
    """Returns a rate whose burst is a whole minute's tokens, since requests may be large."""
    return Rate(tokens_per_minute, tokens_per_minute)


class BucketCharge(msgspec.Struct, frozen=True):
    """Units to charge to one bucket; below zero, to give back."""

    # The name includes the rate: after a change of the limit a key starts with a full bucket, instead of paying off its
    # debt at another rate.
    bucket: str
    rate: Rate
    units: int

    def divided_by(self, replicas: int) -> "BucketCharge":
        return BucketCharge(self.bucket, self.rate.divided_by(replicas), self.units)


class RateCharge(msgspec.Struct, frozen=True):
    """Charges that are made together, or not at all."""

    # The requests part; and the tokens part, if tokens are limited.
    parts: tuple[BucketCharge, ...]
    # False for usage that has already happened: it is charged even if nothing is left.
    is_refusable: bool


def admission(key_id: str, limits: RateLimits, tokens: int) -> RateCharge:
    return RateCharge(_parts(key_id, limits, 1, tokens), True)


def correction(key_id: str, limits: RateLimits, requests: int, tokens: int) -> RateCharge:
    return RateCharge(_parts(key_id, limits, requests, tokens), False)


def _parts(key_id: str, limits: RateLimits, requests: int, tokens: int) -> tuple[BucketCharge, ...]:
    rate = limits.requests
    of_requests = BucketCharge(f"legato:requests:{key_id}:{rate.per_minute}", rate, requests)
    if limits.tokens is None:
        return (of_requests,)
    rate = limits.tokens
    return of_requests, BucketCharge(f"legato:tokens:{key_id}:{rate.per_minute}", rate, tokens)


class RateAllowance(msgspec.Struct, frozen=True):
    """The remaining allowance. The token fields are zero if tokens are not limited."""

    limit_requests: int
    remaining_requests: int
    reset_requests_ms: int
    limit_tokens: int = 0
    remaining_tokens: int = 0
    reset_tokens_ms: int = 0


class Limiter(Protocol):
    def charge(self, charge: RateCharge, reply: Callable[[RateAllowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        """Charges the buckets; resolves to `reply` of the allowance. Refuses, at once or later, with RATE_LIMITED."""
        ...


class LocalLimiter:
    def __init__(self, clock: Clock) -> None:
        self._buckets = Buckets(clock)
        # The number of replicas that share the limits.
        self.replicas = 1

    def charge(self, charge: RateCharge, reply: Callable[[RateAllowance], ReplyT]) -> "asyncio.Future[ReplyT]":
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        future.set_result(reply(self.charge_now(charge)))
        return future

    def charge_now(self, charge: RateCharge) -> RateAllowance:
        parts = charge.parts if self.replicas == 1 else [part.divided_by(self.replicas) for part in charge.parts]
        now_ns = self._buckets.now_ns()
        ahead_ns = [self._buckets.ahead_ns(part.bucket, now_ns) for part in parts]
        # A full bucket refuses nothing.
        if charge.is_refusable and any(ahead_ns):
            refuse_if_used_up(parts, ahead_ns)
        for number, part in enumerate(parts):
            ahead_ns[number] = part.rate.ahead_after_ns(ahead_ns[number], part.units)
            self._buckets.set_ahead(part.bucket, ahead_ns[number], now_ns)
        return allowance(parts, ahead_ns)

    def follow(self, parts: Sequence[BucketCharge], ahead_ns: Sequence[int]) -> None:
        """Copies bucket states from the shared limiter, as a fallback for its outage."""
        now_ns = self._buckets.now_ns()
        for part, each_ns in zip(parts, ahead_ns, strict=True):
            self._buckets.set_ahead(part.bucket, each_ns, now_ns)


def refuse_if_used_up(parts: Sequence[BucketCharge], ahead_ns: Sequence[int]) -> None:
    """Raises RATE_LIMITED for the bucket with the longest wait."""
    longest_ns, hit = 0, 0
    for number, part in enumerate(parts):
        wait_ns = part.rate.wait_ns(ahead_ns[number], part.units)
        if wait_ns > longest_ns:
            longest_ns, hit = wait_ns, number
    if not longest_ns:
        return
    sentence = Sentence("rate_limit", what=_NAMES[hit], most=parts[hit].rate.per_minute)
    # In whole milliseconds, rounded up, so that a retry then succeeds.
    retry_after_s = _to_ms(longest_ns) / 1000
    figures = asdict(allowance(parts, ahead_ns))
    raise LegatoError(Reason.RATE_LIMITED, sentence, retry_after_s=retry_after_s, figures=figures)


def allowance(parts: Sequence[BucketCharge], ahead_ns: Sequence[int]) -> RateAllowance:
    figures: list[int] = []
    for number, part in enumerate(parts):
        each_ns = ahead_ns[number]
        figures += (part.rate.per_minute, part.rate.remaining(each_ns), _to_ms(each_ns))
    return RateAllowance(*figures)


def _to_ms(nanoseconds: int) -> int:
    return -(-nanoseconds // 1_000_000)
