"""Rules of docs/revocation.md: what an edge may believe, on a clock that the test moves."""

import hashlib

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from edge.access.principal_cache import LEASE_S, MOST_CACHED_PRINCIPALS, PrincipalCache
from edge.backends.auth import Principal
from legato_protos.auth.v1 import auth_pb2 as pb
from tests.support.fakes import FakeClock

HOUR_S = 3600


@pytest.fixture
def cache(clock: FakeClock) -> PrincipalCache:
    return PrincipalCache(clock)


def principal(key_id: str = "key_a", expires_at_s: float | None = None) -> Principal:
    return Principal("acct_a", key_id, frozenset(), expires_at_s, "forte", None, b"a digest key")


def heartbeat(auth_time_s: float) -> pb.WatchResponse:
    """Auth's own time, which need not be the edge's."""
    return pb.WatchResponse(epoch=1, read_time=Timestamp(seconds=int(auth_time_s), nanos=round(auth_time_s % 1 * 1e9)))


def digest_of(key_id: str) -> bytes:
    return hashlib.sha256(key_id.encode()).digest()


def learn(cache: PrincipalCache, clock: FakeClock, *key_ids: str, epoch: int = 1) -> None:
    for key_id in key_ids:
        assert cache.put(digest_of(key_id), principal(key_id), epoch, clock.elapsed_s())


def knows(cache: PrincipalCache, key_id: str) -> bool:
    return cache.find(digest_of(key_id)) is not None


def test_what_was_learned_counts_within_the_lease_and_not_a_moment_longer(
    cache: PrincipalCache, clock: FakeClock
) -> None:
    learn(cache, clock, "key_a")
    assert not knows(cache, "key_a")
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    assert cache.find(digest_of("key_a")) == principal("key_a")
    clock.advance(LEASE_S - 0.001)
    assert knows(cache, "key_a")
    clock.advance(0.001)
    assert not knows(cache, "key_a")


def test_lease_counts_from_when_the_ping_was_sent_however_late_its_echo_came(
    cache: PrincipalCache, clock: FakeClock
) -> None:
    learn(cache, clock, "key_a")
    sent_at_s = clock.elapsed_s()
    clock.advance(LEASE_S)
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s)
    assert not knows(cache, "key_a")


def test_late_echo_of_an_older_ping_shortens_no_lease(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a")
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s() - 0.5)
    clock.advance(LEASE_S - 0.001)
    assert knows(cache, "key_a")


def test_heartbeat_that_echoes_no_ping_of_ours_forgets_but_prolongs_nothing(
    cache: PrincipalCache, clock: FakeClock
) -> None:
    learn(cache, clock, "key_a", "key_b")
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    clock.advance(0.5)
    cache.apply_heartbeat(pb.WatchResponse(epoch=2, changed_key_ids=["key_a"]), sent_at_s=None)
    assert not knows(cache, "key_a")
    assert knows(cache, "key_b")
    clock.advance(LEASE_S - 0.5)
    assert not knows(cache, "key_b")


def test_changed_key_is_forgotten_and_others_are_kept(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a", "key_b")
    cache.apply_heartbeat(
        pb.WatchResponse(epoch=2, changed_key_ids=["key_a", "key_unknown"]), sent_at_s=clock.elapsed_s()
    )
    assert not knows(cache, "key_a")
    assert not cache.knows("key_a")
    assert knows(cache, "key_b")


def test_key_that_was_learned_after_the_change_is_kept(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a", epoch=2)
    cache.apply_heartbeat(pb.WatchResponse(epoch=2, changed_key_ids=["key_a"]), sent_at_s=clock.elapsed_s())
    assert knows(cache, "key_a")


def test_gap_forgets_everything_that_is_older(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a", "key_b", epoch=1)
    learn(cache, clock, "key_c", epoch=5)
    cache.apply_heartbeat(pb.WatchResponse(epoch=5, forget_all=True), sent_at_s=clock.elapsed_s())
    assert [knows(cache, key_id) for key_id in ("key_a", "key_b", "key_c")] == [False, False, True]


def test_epoch_never_goes_back(cache: PrincipalCache, clock: FakeClock) -> None:
    cache.apply_heartbeat(pb.WatchResponse(epoch=7), sent_at_s=clock.elapsed_s())
    cache.apply_heartbeat(pb.WatchResponse(epoch=6), sent_at_s=clock.elapsed_s())
    assert cache.epoch == 7


def test_answer_from_before_a_change_that_we_know_of_is_neither_used_nor_kept(
    cache: PrincipalCache, clock: FakeClock
) -> None:
    """A lookup that was under way while its key was revoked must not put the key back."""
    asked_at_s = clock.elapsed_s()
    cache.apply_heartbeat(pb.WatchResponse(epoch=2, changed_key_ids=["key_a"]), sent_at_s=clock.elapsed_s())
    assert not cache.put(digest_of("key_a"), principal("key_a"), 1, asked_at_s)
    assert not knows(cache, "key_a")
    assert cache.put(digest_of("key_a"), principal("key_a"), 2, asked_at_s)


def test_answer_that_took_as_long_as_a_lease_is_neither_used_nor_kept(cache: PrincipalCache, clock: FakeClock) -> None:
    asked_at_s = clock.elapsed_s()
    clock.advance(LEASE_S)
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    assert not cache.put(digest_of("key_a"), principal("key_a"), 1, asked_at_s)
    assert not knows(cache, "key_a")


def test_answer_that_is_for_once_is_used_and_leaves_nothing_behind(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a")
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    cache.pop_used_keys(10)
    assert cache.put(digest_of("key_a"), principal(), 1, clock.elapsed_s(), once_only=True)
    assert cache.put(digest_of("key_b"), principal("key_b"), 1, clock.elapsed_s(), once_only=True)
    assert not knows(cache, "key_a")
    assert not knows(cache, "key_b")
    assert set(cache.pop_used_keys(10)) == {"key_a", "key_b"}


def test_answer_that_is_for_once_must_be_as_fresh_as_any(cache: PrincipalCache, clock: FakeClock) -> None:
    cache.apply_heartbeat(pb.WatchResponse(epoch=2), sent_at_s=clock.elapsed_s())
    assert not cache.put(digest_of("key_a"), principal(), 1, clock.elapsed_s(), once_only=True)


@pytest.mark.parametrize("skew_s", [-HOUR_S, 0, HOUR_S])
def test_key_counts_until_it_expires_by_the_time_of_auth_whatever_our_own_clock_says(
    cache: PrincipalCache, clock: FakeClock, skew_s: float
) -> None:
    auth_time_s = clock.now().timestamp() + skew_s
    cache.put(digest_of("key_a"), principal(expires_at_s=auth_time_s + 0.5), 1, clock.elapsed_s())
    cache.apply_heartbeat(heartbeat(auth_time_s), sent_at_s=clock.elapsed_s())
    clock.advance(0.499)
    assert knows(cache, "key_a")
    clock.advance(0.001)
    assert not knows(cache, "key_a")


def test_key_does_not_live_on_by_what_a_heartbeat_took_to_come(cache: PrincipalCache, clock: FakeClock) -> None:
    """Auth read its time after our ping had come: since we sent it, at least as much time has passed there."""
    auth_time_s = clock.now().timestamp()
    cache.put(digest_of("key_a"), principal(expires_at_s=auth_time_s + 0.5), 1, clock.elapsed_s())
    sent_at_s = clock.elapsed_s()
    clock.advance(0.5)
    cache.apply_heartbeat(heartbeat(auth_time_s), sent_at_s)
    assert not knows(cache, "key_a")


def test_machine_whose_clocks_stood_still_learns_the_time_with_its_next_lease(
    cache: PrincipalCache, clock: FakeClock
) -> None:
    auth_time_s = clock.now().timestamp()
    cache.put(digest_of("key_a"), principal(expires_at_s=auth_time_s + HOUR_S), 1, clock.elapsed_s())
    cache.apply_heartbeat(heartbeat(auth_time_s), sent_at_s=clock.elapsed_s())
    assert knows(cache, "key_a")
    # Suspended for two hours, of which nothing here has noticed.
    clock.advance(0.2)
    cache.apply_heartbeat(heartbeat(auth_time_s + 2 * HOUR_S), sent_at_s=clock.elapsed_s())
    assert not knows(cache, "key_a")


def test_late_echo_of_an_older_ping_does_not_turn_the_time_back(cache: PrincipalCache, clock: FakeClock) -> None:
    auth_time_s = clock.now().timestamp()
    cache.put(digest_of("key_a"), principal(expires_at_s=auth_time_s), 1, clock.elapsed_s())
    cache.apply_heartbeat(heartbeat(auth_time_s), sent_at_s=clock.elapsed_s())
    cache.apply_heartbeat(heartbeat(auth_time_s - HOUR_S), sent_at_s=clock.elapsed_s() - 0.1)
    assert not knows(cache, "key_a")


def test_auth_of_an_older_version_tells_no_time_and_our_own_is_taken(cache: PrincipalCache, clock: FakeClock) -> None:
    expires_at_s = clock.now().timestamp() + 0.5
    cache.put(digest_of("key_a"), principal(expires_at_s=expires_at_s), 1, clock.elapsed_s())
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    assert knows(cache, "key_a")
    clock.advance(0.5)
    assert not knows(cache, "key_a")


def test_lag_is_the_age_of_what_is_known(cache: PrincipalCache, clock: FakeClock) -> None:
    assert cache.lag_s == float("inf")
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s())
    clock.advance(1.5)
    assert cache.lag_s == 1.5


def test_use_is_told_once_a_key_and_hour(cache: PrincipalCache, clock: FakeClock) -> None:
    clock.advance(HOUR_S / 2)
    learn(cache, clock, "key_a")
    assert cache.pop_used_keys(10) == ["key_a"]
    cache.apply_heartbeat(pb.WatchResponse(epoch=1), sent_at_s=clock.elapsed_s() + HOUR_S)
    # Neither another use nor another verification within the hour is news.
    clock.advance(HOUR_S / 2 - 1)
    assert knows(cache, "key_a")
    learn(cache, clock, "key_a")
    assert cache.pop_used_keys(10) == []
    clock.advance(1)
    assert knows(cache, "key_a")
    assert cache.pop_used_keys(10) == ["key_a"]
    assert cache.pop_used_keys(10) == []


def test_uses_are_told_in_portions_and_again_where_they_were_not_heard(cache: PrincipalCache, clock: FakeClock) -> None:
    learn(cache, clock, "key_a", "key_b", "key_c")
    first = cache.pop_used_keys(2)
    assert len(first) == 2
    cache.add_used_keys(first)
    assert set(cache.pop_used_keys(10)) == {"key_a", "key_b", "key_c"}


def test_memory_is_bounded_and_the_oldest_goes_first(cache: PrincipalCache, clock: FakeClock) -> None:
    one = principal()
    for number in range(MOST_CACHED_PRINCIPALS + 1):
        key = Principal("acct_a", f"key_{number}", *(one.scopes, None, "forte", None, b""))
        assert cache.put(number.to_bytes(32), key, 1, clock.elapsed_s())
    assert not cache.knows("key_0")
    assert cache.knows("key_1")
    assert cache.knows(f"key_{MOST_CACHED_PRINCIPALS}")
