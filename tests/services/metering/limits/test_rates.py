import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.metering.limits.rates import (
    LocalLimiter,
    RateAllowance,
    RateLimits,
    admission,
    correction,
    request_rate,
    token_rate,
)
from tests.support.fakes import FakeClock

# One request every 20 ms.
REQUESTS = RateLimits(Rate(3_000, 200))
# And one token every 60 ms.
BOTH = RateLimits(Rate(3_000, 200), token_rate(1_000))


@pytest.fixture
def limiter(clock: FakeClock) -> LocalLimiter:
    return LocalLimiter(clock)


def admit(limiter: LocalLimiter, limits: RateLimits = BOTH, tokens: int = 0, key_id: str = "key_a") -> RateAllowance:
    return limiter.charge_now(admission(key_id, limits, tokens))


def correct(limiter: LocalLimiter, tokens: int, *, requests: int = 0) -> RateAllowance:
    return limiter.charge_now(correction("key_a", BOTH, requests, tokens))


def refusal_of(limiter: LocalLimiter, limits: RateLimits = BOTH, tokens: int = 0, key_id: str = "key_a") -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        admit(limiter, limits, tokens, key_id)
    assert refusal.value.reason is Reason.RATE_LIMITED
    return refusal.value


def test_burst_is_let_through_and_not_one_request_more(limiter: LocalLimiter) -> None:
    for _ in range(200):
        admit(limiter, REQUESTS)
    assert refusal_of(limiter, REQUESTS).retry_after_s == 0.02


def test_allowance_tells_limit_remaining_and_reset_of_both(limiter: LocalLimiter, clock: FakeClock) -> None:
    assert admit(limiter, REQUESTS) == RateAllowance(3_000, 199, 20)
    assert admit(limiter, BOTH, 100) == RateAllowance(3_000, 198, 40, 1_000, 900, 6_000)
    clock.advance(0.03)
    assert admit(limiter, BOTH, 50) == RateAllowance(3_000, 198, 30, 1_000, 850, 8_970)
    clock.advance(60)
    assert admit(limiter, BOTH) == RateAllowance(3_000, 199, 20, 1_000, 1_000, 0)


def test_refusal_by_tokens_takes_no_request_either(limiter: LocalLimiter, clock: FakeClock) -> None:
    admit(limiter, BOTH, 900)
    for _ in range(300):
        refusal_of(limiter, BOTH, 200)
    refusal = refusal_of(limiter, BOTH, 200)
    assert refusal.retry_after_s == 6.0
    assert "tokens with this key: its limit is 1000 per minute" in refusal.message
    assert refusal.figures == {
        "limit_requests": 3_000, "remaining_requests": 199, "reset_requests_ms": 20,
        "limit_tokens": 1_000, "remaining_tokens": 100, "reset_tokens_ms": 54_000,
    }  # fmt: skip
    clock.advance(6)
    admit(limiter, BOTH, 200)


def test_refusal_by_requests_takes_no_tokens_either(limiter: LocalLimiter) -> None:
    slow = RateLimits(Rate(1, 1), token_rate(1_000))
    admit(limiter, slow, 100)
    refusal = refusal_of(limiter, slow, 100)
    assert "requests" in refusal.message
    assert (refusal.figures["remaining_requests"], refusal.figures["remaining_tokens"]) == (0, 900)


def test_of_two_limits_that_are_hit_the_one_that_lasts_longer_is_told(limiter: LocalLimiter) -> None:
    slow = RateLimits(Rate(1, 1), token_rate(1_000))
    admit(limiter, slow, 3_000)
    refusal = refusal_of(limiter, slow, 1_000)
    assert refusal.retry_after_s == 180
    assert "tokens" in refusal.message


def test_request_without_tokens_is_not_held_to_their_rate(limiter: LocalLimiter) -> None:
    admit(limiter, BOTH, 5_000)
    admit(limiter, BOTH, 0)


def test_correction_takes_and_gives_back_and_is_never_refused(limiter: LocalLimiter) -> None:
    admit(limiter, BOTH, 100)
    assert correct(limiter, 50).remaining_tokens == 850
    assert correct(limiter, -30).remaining_tokens == 880
    assert correct(limiter, 2_000) == RateAllowance(3_000, 199, 20, 1_000, 0, 127_200)
    assert correct(limiter, 2_000, requests=-1).remaining_requests == 200


def test_what_is_given_back_never_makes_more_than_there_was(limiter: LocalLimiter) -> None:
    admit(limiter, BOTH, 100)
    assert correct(limiter, -10_000, requests=-1) == RateAllowance(3_000, 200, 0, 1_000, 1_000, 0)


def test_debt_is_an_hour_at_most(limiter: LocalLimiter) -> None:
    admit(limiter, BOTH, 10**9)
    assert refusal_of(limiter, BOTH, 1_000).retry_after_s == 3_600 + 60


def test_keys_do_not_take_from_each_other(limiter: LocalLimiter) -> None:
    slow = RateLimits(Rate(60, 1))
    admit(limiter, slow)
    admit(limiter, slow, key_id="key_b")
    assert refusal_of(limiter, slow, key_id="key_b").retry_after_s == 1.0


@pytest.mark.parametrize(("before", "after"), [(Rate(1, 1), Rate(3_000, 200)), (Rate(3_000, 1), Rate(60, 4))])
def test_changed_limit_holds_from_the_next_request_on_and_begins_anew(
    limiter: LocalLimiter, before: Rate, after: Rate
) -> None:
    admit(limiter, RateLimits(before))
    refusal_of(limiter, RateLimits(before))
    for remaining in reversed(range(after.burst)):
        assert admit(limiter, RateLimits(after)).remaining_requests == remaining
    refusal_of(limiter, RateLimits(after))


@pytest.mark.parametrize(("requests_per_minute", "burst"), [(1, 1), (14, 1), (15, 1), (30, 2), (3_000, 200)])
def test_override_has_a_burst_of_four_seconds(requests_per_minute: int, burst: int) -> None:
    assert request_rate(requests_per_minute) == Rate(requests_per_minute, burst)


def test_share_of_a_replica_is_rounded_down_but_never_to_nothing(limiter: LocalLimiter) -> None:
    limiter.replicas = 3
    for _ in range(66):
        admit(limiter, BOTH)
    refusal = refusal_of(limiter, BOTH)
    assert (refusal.figures["limit_requests"], refusal.figures["limit_tokens"]) == (1_000, 333)
    single = RateLimits(Rate(1, 1), token_rate(2))
    assert admit(limiter, single, 1) == RateAllowance(1, 0, 60_000, 1, 0, 60_000)


async def test_admission_is_a_future_that_is_done(limiter: LocalLimiter) -> None:
    future = limiter.charge(admission("key_a", REQUESTS, 0), lambda allowance: allowance.remaining_requests)
    assert future.done()
    assert await future == 199
