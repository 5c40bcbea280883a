import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.metering.limits import (
    MOST_ACCOUNTS,
    MOST_KEPT,
    LocalLimiter,
    RateAllowance,
    RateLimits,
    UnpaidLimit,
    UnpaidPrompts,
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


ANN, BOB = "acct_ann", "acct_bob"


@pytest.fixture
def unpaid(clock: FakeClock) -> UnpaidPrompts:
    return UnpaidPrompts(UnpaidLimit(prompts=3, tokens=30_000, window_s=600), clock)


def leave(unpaid: UnpaidPrompts, times: int, tokens: int = 200_000, account: str = ANN) -> None:
    for number in range(times):
        unpaid.note(account, f"{account}-{tokens}-{number}", tokens)


def test_third_big_prompt_makes_it_a_habit_of_that_account_alone(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 2)
    assert not unpaid.is_over_limit(ANN)
    leave(unpaid, 3)
    assert unpaid.is_over_limit(ANN)
    assert not unpaid.is_over_limit(BOB)


def test_short_prompts_are_no_habit_however_many(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 10 * MOST_KEPT, tokens=10)
    assert not unpaid.is_over_limit(ANN)


def test_many_prompts_of_some_size_are_a_habit(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 29, tokens=1_000)
    assert not unpaid.is_over_limit(ANN)
    leave(unpaid, 30, tokens=1_000)
    assert unpaid.is_over_limit(ANN)


def test_now_and_then_is_no_habit(unpaid: UnpaidPrompts, clock: FakeClock) -> None:
    for number in range(20):
        unpaid.note(ANN, str(number), 200_000)
        assert not unpaid.is_over_limit(ANN)
        clock.advance(301)


def test_habit_is_forgiven_when_its_time_is_over(unpaid: UnpaidPrompts, clock: FakeClock) -> None:
    leave(unpaid, 3)
    clock.advance(599)
    assert unpaid.is_over_limit(ANN)
    clock.advance(1)
    assert not unpaid.is_over_limit(ANN)


def test_prompt_that_is_told_of_twice_counts_once(unpaid: UnpaidPrompts) -> None:
    for _ in range(5):
        unpaid.note(ANN, "the same", 200_000)
    assert not unpaid.is_over_limit(ANN)


def test_nobody_has_a_habit_that_is_set_to_none(clock: FakeClock) -> None:
    unpaid = UnpaidPrompts(UnpaidLimit(prompts=0, tokens=0, window_s=600), clock)
    leave(unpaid, 100)
    assert not unpaid.is_over_limit(ANN)


def test_only_so_many_accounts_are_remembered(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 3)
    for number in range(MOST_ACCOUNTS):
        leave(unpaid, 3, account=str(number))
    assert not unpaid.is_over_limit(ANN)
    assert unpaid.is_over_limit("0")
