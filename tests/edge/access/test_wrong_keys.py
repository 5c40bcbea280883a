"""Wrong keys are counted by the address they come from."""

from typing import Any

import pytest

from edge.access.wrong_keys import WrongKeyLimiter
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.addresses import Addresses
from tests.support.fakes import FakeClock

A_MINUTE = 60


def scope(client: str | None) -> dict[str, Any]:
    return {"client": (client, 40000) if client else None, "headers": []}


def wrong_key_limiter(clock: FakeClock, per_minute: int = A_MINUTE) -> WrongKeyLimiter:
    return WrongKeyLimiter(per_minute, Addresses(), clock)


def count_until_refused(counted: WrongKeyLimiter, client: str, most: int = 1000) -> int:
    for number in range(most):
        try:
            counted.count(scope(client))
        except LegatoError:
            return number
    return most


def test_too_many_wrong_keys_from_one_address_are_refused() -> None:
    assert count_until_refused(wrong_key_limiter(FakeClock()), "203.0.113.7") == A_MINUTE


def test_other_addresses_are_not_affected() -> None:
    counted = wrong_key_limiter(FakeClock())
    count_until_refused(counted, "203.0.113.7")

    counted.count(scope("203.0.113.8"))


def test_address_may_try_again_after_a_while() -> None:
    clock = FakeClock()
    counted = wrong_key_limiter(clock)
    count_until_refused(counted, "203.0.113.7")
    with pytest.raises(LegatoError) as refused:
        counted.count(scope("203.0.113.7"))
    assert refused.value.reason is Reason.TOO_MANY_WRONG_KEYS
    clock.advance(refused.value.retry_after_s or 0)

    assert count_until_refused(counted, "203.0.113.7") == 1


def test_one_network_of_the_newer_kind_is_one_stranger() -> None:
    """A single customer of a provider has as many of those addresses as there are grains of sand."""
    counted = wrong_key_limiter(FakeClock())
    count_until_refused(counted, "2001:db8:1:2::1")

    with pytest.raises(LegatoError):
        counted.count(scope("2001:db8:1:2:ffff::9"))
    counted.count(scope("2001:db8:1:3::1"))


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", None])
def test_this_machine_itself_is_exempt(client: str | None) -> None:
    counted = wrong_key_limiter(FakeClock(), per_minute=1)
    for _ in range(10):
        counted.count(scope(client))


def test_zero_sets_no_limit() -> None:
    assert count_until_refused(wrong_key_limiter(FakeClock(), per_minute=0), "203.0.113.7") == 1000


def test_many_addresses_take_little_room() -> None:
    """A client of many addresses must not fill our memory with them."""
    clock = FakeClock()
    counted = wrong_key_limiter(clock)
    for number in range(20_000):
        counted.count(scope(f"198.{number >> 16}.{number >> 8 & 255}.{number & 255}"))
        clock.advance(0.01)

    assert len(counted._buckets) < 10_000


def told(counted: WrongKeyLimiter, client: str) -> tuple[str, str]:
    headers = dict(counted.rates(scope(client)))
    assert len(headers) == 6
    limit, remaining = headers[b"x-ratelimit-limit-requests"], headers[b"x-ratelimit-remaining-requests"]
    return limit.decode(), remaining.decode()


def test_stranger_is_told_how_many_wrong_keys_are_left() -> None:
    counted = wrong_key_limiter(FakeClock())
    counted.count(scope("203.0.113.7"))
    assert told(counted, "203.0.113.7") == ("60", "59")
    assert told(counted, "203.0.113.8") == ("60", "60")
    assert told(counted, "127.0.0.1") == ("60", "60")
    assert wrong_key_limiter(FakeClock(), per_minute=0).rates(scope("203.0.113.7")) == []
