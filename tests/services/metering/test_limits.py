import pytest

from services.chassis.errors import LegatoError, Reason
from services.metering.limits import Allowance, LocalLimiter, Rate, override
from tests.fakes import FakeClock

# One request every 20 ms.
RATE = Rate(3_000, 200)


@pytest.fixture
def limiter(clock: FakeClock) -> LocalLimiter:
    return LocalLimiter(clock)


def wait_s(limiter: LocalLimiter, rate: Rate, key_id: str = "key_a") -> float:
    with pytest.raises(LegatoError) as refusal:
        limiter.take(key_id, rate)
    assert refusal.value.reason is Reason.RATE_LIMITED
    assert refusal.value.retry_after_s is not None
    return refusal.value.retry_after_s


def test_burst_is_let_through_and_not_one_request_more(limiter: LocalLimiter) -> None:
    for _ in range(200):
        limiter.take("key_a", RATE)
    assert wait_s(limiter, RATE) == 0.02


def test_after_the_burst_requests_come_at_the_rate_exactly(limiter: LocalLimiter, clock: FakeClock) -> None:
    for _ in range(200):
        limiter.take("key_a", RATE)
    admitted = 0
    for _ in range(60_000 // 5):
        clock.advance(0.005)
        try:
            limiter.take("key_a", RATE)
            admitted += 1
        except LegatoError:
            pass
    assert admitted == 3_000


def test_refused_request_takes_nothing(limiter: LocalLimiter, clock: FakeClock) -> None:
    rate = Rate(60, 1)
    limiter.take("key_a", rate)
    for _ in range(10):
        assert wait_s(limiter, rate) == 1.0
    clock.advance(1.0)
    limiter.take("key_a", rate)


def test_who_waits_as_long_as_told_is_let_in(limiter: LocalLimiter, clock: FakeClock) -> None:
    rate = Rate(7, 1)
    for _ in range(5):
        limiter.take("key_a", rate)
        clock.advance(wait_s(limiter, rate))


def test_allowance_tells_limit_remaining_and_reset(limiter: LocalLimiter, clock: FakeClock) -> None:
    assert limiter.take("key_a", RATE) == Allowance(3_000, 199, 20)
    assert limiter.take("key_a", RATE) == Allowance(3_000, 198, 40)
    clock.advance(0.03)
    assert limiter.take("key_a", RATE) == Allowance(3_000, 198, 30)
    clock.advance(60)
    assert limiter.take("key_a", RATE) == Allowance(3_000, 199, 20)


def test_keys_do_not_take_from_each_other(limiter: LocalLimiter) -> None:
    rate = Rate(60, 1)
    limiter.take("key_a", rate)
    limiter.take("key_b", rate)
    assert wait_s(limiter, rate, "key_b") == 1.0


def test_faster_rate_holds_from_the_next_request_on(limiter: LocalLimiter) -> None:
    slow = Rate(1, 1)
    limiter.take("key_a", slow)
    assert wait_s(limiter, slow, "key_a") == 60.0
    assert limiter.take("key_a", RATE) == Allowance(3_000, 199, 20)


@pytest.mark.parametrize(("requests_per_minute", "burst"), [(1, 1), (14, 1), (15, 1), (30, 2), (3_000, 200)])
def test_override_has_a_burst_of_four_seconds(requests_per_minute: int, burst: int) -> None:
    assert override(requests_per_minute) == Rate(requests_per_minute, burst)


def test_override_holds_from_the_next_request_on(limiter: LocalLimiter) -> None:
    # Four seconds of the old rate: as far ahead as the new one allows.
    for _ in range(200):
        limiter.take("key_a", RATE)
    assert wait_s(limiter, override(60)) == 1.0


def test_idle_keys_are_forgotten(limiter: LocalLimiter, clock: FakeClock) -> None:
    for number in range(50_000):
        limiter.take(f"key_{number}", RATE)
        clock.advance(0.001)
    assert len(limiter) < 2_000


async def test_admission_is_a_future_that_is_done(limiter: LocalLimiter) -> None:
    future = limiter.admit("key_a", RATE, lambda allowance: allowance.remaining_requests)
    assert future.done()
    assert await future == 199
