import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.metering.limits import valkey
from services.metering.limits.rates import LocalLimiter, RateAllowance, RateLimits, admission, correction, token_rate
from services.metering.limits.valkey import HEARTBEAT_LIFE_S, LOOKS, ValkeyLimiter, make_client
from tests.services.metering.limits.valkey_link import Link
from tests.support.fakes import FakeClock
from tests.support.servers.valkey import Valkey
from tests.support.waiting import until

# So slow that no time passes while a test runs.
SLOW = RateLimits(Rate(1, 5))
SLOW_TOKENS = RateLimits(Rate(1, 1_000), Rate(1, 60))


@asynccontextmanager
async def opened(
    url: str, log: Log, fewest_replicas: int = 1, local: LocalLimiter | None = None, peers: str = ""
) -> AsyncIterator[ValkeyLimiter]:
    limiter = ValkeyLimiter(url, local or LocalLimiter(FakeClock()), log, fewest_replicas, peers)
    await limiter.start()
    try:
        yield limiter
    finally:
        await limiter.close()


@pytest.fixture
async def limiter(valkey_url: str, log: Log) -> AsyncIterator[ValkeyLimiter]:
    async with opened(valkey_url, log) as limiter:
        yield limiter


@pytest.fixture
def standby() -> Iterator[Valkey]:
    server = Valkey()
    server.start()
    yield server
    server.stop()


async def admit(limiter: ValkeyLimiter, limits: RateLimits = SLOW, tokens: int = 0) -> RateAllowance:
    return await limiter.charge(admission("key_a", limits, tokens), lambda allowance: allowance)


async def correct(
    limiter: ValkeyLimiter, tokens: int, *, requests: int = 0, limits: RateLimits = SLOW_TOKENS
) -> RateAllowance:
    return await limiter.charge(correction("key_a", limits, requests, tokens), lambda allowance: allowance)


async def count_admitted(limiter: ValkeyLimiter, times: int, limits: RateLimits = SLOW, tokens: int = 0) -> int:
    asked = (admit(limiter, limits, tokens) for _ in range(times))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, LegatoError)]
    assert {refusal.reason for refusal in refusals} <= {Reason.RATE_LIMITED}
    assert all(refusal.retry_after_s for refusal in refusals)
    return times - len(refusals)


@pytest.mark.parametrize(
    ("limits", "tokens", "allowed"),
    [(SLOW, 0, 5), (SLOW_TOKENS, 7, 8), (RateLimits(Rate(1, 10), Rate(1, 61)), 2, 10)],
    ids=["requests", "tokens", "the smaller of both"],
)
async def test_replicas_share_one_burst(
    limiter: ValkeyLimiter, valkey_url: str, log: Log, limits: RateLimits, tokens: int, allowed: int
) -> None:
    async with opened(valkey_url, log) as other:
        each = [count_admitted(replica, 400, limits, tokens) for replica in (limiter, other)]
        assert sum(await asyncio.gather(*each)) == allowed


async def test_both_limits_are_counted_as_in_memory(limiter: ValkeyLimiter) -> None:
    """The script and `gcra.py` are two implementations of one rule."""
    local = LocalLimiter(FakeClock())
    limits = RateLimits(Rate(1, 40), Rate(1, 7))
    for tokens, corrected in ((3, 0), (2, -2), (5, 3), (0, 100), (1, -90), (9, 0), (1, -1000), (50, -45), (2, 10**9)):
        told: list[Any] = []
        for each in (limiter, local):
            for charge in (admission("key_a", limits, tokens), correction("key_a", limits, 0, corrected)):
                try:
                    told.append(await each.charge(charge, lambda allowance: allowance))
                except LegatoError as refusal:
                    told.append(refusal.figures)
        # Time passes on the server only.
        assert [_without_times(each) for each in told[:2]] == [_without_times(each) for each in told[2:]]


def _without_times(told: RateAllowance | dict[str, int]) -> tuple[int, ...]:
    names = ("limit_requests", "remaining_requests", "limit_tokens", "remaining_tokens")
    return tuple(told[name] if isinstance(told, dict) else getattr(told, name) for name in names)


async def test_allowance_tells_limit_remaining_and_reset(limiter: ValkeyLimiter) -> None:
    assert await admit(limiter) == RateAllowance(1, 4, 60_000)
    assert (await admit(limiter)).remaining_requests == 3
    allowance = await admit(limiter, SLOW_TOKENS, 20)
    assert (allowance.limit_tokens, allowance.remaining_tokens, allowance.reset_tokens_ms) == (1, 40, 20 * 60_000)


async def test_refused_request_takes_nothing(limiter: ValkeyLimiter) -> None:
    limits = RateLimits(Rate(1, 1), Rate(1, 60))
    await admit(limiter, limits, 7)
    told = await asyncio.gather(*(admit(limiter, limits, 1) for _ in range(200)), return_exceptions=True)
    refusals = [each for each in told if isinstance(each, LegatoError)]
    assert [each.figures["remaining_tokens"] for each in refusals] == [53] * 200


async def test_time_gives_back(limiter: ValkeyLimiter) -> None:
    limits = RateLimits(Rate(120, 1))
    refusal = await refused(limiter, limits)
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s <= 0.5
    await asyncio.sleep(refusal.retry_after_s)
    await admit(limiter, limits)


async def refused(limiter: ValkeyLimiter, limits: RateLimits) -> LegatoError:
    """Asks until refused: time gives back on a machine that stalls, so more than the burst gets in."""
    while True:
        try:
            await admit(limiter, limits)
        except LegatoError as refusal:
            return refusal


async def test_correction_takes_and_gives_back_and_is_never_refused(limiter: ValkeyLimiter) -> None:
    await admit(limiter, SLOW_TOKENS, 30)
    assert (await correct(limiter, 20)).remaining_tokens == 10
    assert (await correct(limiter, -15)).remaining_tokens == 25
    in_debt = await correct(limiter, 10**9, requests=-1)
    assert (in_debt.remaining_requests, in_debt.remaining_tokens) == (1_000, 0)
    # What the burst is worth, and an hour of debt.
    assert in_debt.reset_tokens_ms == (60 + 60) * 60_000
    with pytest.raises(LegatoError, match="tokens"):
        await admit(limiter, SLOW_TOKENS, 1)


async def test_corrections_by_many_replicas_add_up(limiter: ValkeyLimiter, valkey_url: str, log: Log) -> None:
    async with opened(valkey_url, log) as other:
        limits = RateLimits(Rate(1, 1_000), Rate(1, 1_000))
        await asyncio.gather(*(correct(each, 2, limits=limits) for each in [limiter, other] * 200))
        assert (await admit(limiter, limits)).remaining_tokens == 200


async def test_changed_limit_begins_anew(limiter: ValkeyLimiter) -> None:
    slow = RateLimits(Rate(1, 1))
    await admit(limiter, slow)
    with pytest.raises(LegatoError):
        await admit(limiter, slow)
    assert (await admit(limiter, RateLimits(Rate(3_000, 200)))).remaining_requests == 199


async def test_buckets_expire_when_they_are_whole(limiter: ValkeyLimiter, valkey_url: str) -> None:
    await admit(limiter, SLOW_TOKENS, 30)
    with redis.Redis.from_url(valkey_url) as client:
        assert 0 < client.pttl("legato:requests:key_a:1") <= 60_000
        assert 0 < client.pttl("legato:tokens:key_a:1") <= 30 * 60_000
        await correct(limiter, -30, requests=-1)
        assert not client.exists("legato:requests:key_a:1", "legato:tokens:key_a:1")


async def test_valkey_that_goes_away_leaves_local_limits_and_is_found_again(
    link: Link, log: Log, log_text: Callable[[], str]
) -> None:
    async with opened(link.url, log) as limiter:
        assert await count_admitted(limiter, 2) == 2
        link.cut()
        # What the shared limit had let in counts here too: no second burst.
        assert await count_admitted(limiter, 20) == 3
        assert log_text().count("limits.local") == 1
        link.join()
        await until(lambda: "limits.shared" in log_text())
        # There only two were ever let in.
        assert await count_admitted(limiter, 20) == 3


async def test_valkey_that_was_replaced_at_its_address_is_found(
    link: Link, log: Log, valkey_url: str, standby: Valkey
) -> None:
    async with opened(link.url, log) as limiter:
        await admit(limiter)
        with redis.Redis.from_url(valkey_url) as demoted, redis.Redis.from_url(standby.url) as promoted:
            link.lead_to(standby.url)
            # It breaks no connection, and answers: that it may only be read.
            demoted.replicaof("127.0.0.1", "1")
            try:
                await admit(limiter)
                await until(lambda: limiter.is_shared)
            finally:
                demoted.replicaof("NO", "ONE")
            await admit(limiter)
            assert promoted.exists("legato:requests:key_a:1")


async def test_replicas_that_are_cut_off_share_out_the_limit_among_them(link: Link, log: Log) -> None:
    limits = RateLimits(Rate(1, 10), token_rate(60))
    locals_ = [LocalLimiter(FakeClock()) for _ in range(3)]
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(opened(link.url, log, local=local)) for local in locals_]
        await until(lambda: {local.replicas for local in locals_} == {3})
        link.cut()
        assert [await count_admitted(each, 30, limits) for each in replicas] == [3, 3, 3]
        refusals = await asyncio.gather(*(admit(each, limits) for each in replicas), return_exceptions=True)
        assert all(isinstance(each, LegatoError) and each.figures["limit_tokens"] == 20 for each in refusals)
        link.join()


async def test_replica_that_ends_leaves_its_share_to_the_others(valkey_url: str, log: Log) -> None:
    local = LocalLimiter(FakeClock())
    async with opened(valkey_url, log, local=local):
        async with opened(valkey_url, log):
            await until(lambda: local.replicas == 2)
        await until(lambda: local.replicas == 1)


async def test_replica_that_was_killed_leaves_its_share_to_the_others(valkey_url: str, log: Log) -> None:
    local = LocalLimiter(FakeClock())
    with redis.Redis.from_url(valkey_url) as client:
        now_s, _ = client.time()
        client.zadd(
            "legato:metering-replicas", {"dead": now_s - HEARTBEAT_LIFE_S, "dying": now_s - HEARTBEAT_LIFE_S + 2}
        )
    async with opened(valkey_url, log, local=local):
        await until(lambda: local.replicas == 1)


async def test_valkey_that_does_not_answer_keeps_no_request_waiting_for_long(
    link: Link, log: Log, monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    monkeypatch.setattr(valkey, "LOOKS", LOOKS)
    async with opened(link.url, log) as limiter:
        link.silence()
        assert await count_admitted(limiter, 2_000) == 5
        assert log_text().count("limits.local") == 1


async def test_stall_of_our_own_is_not_taken_for_a_server_that_is_away(
    limiter: ValkeyLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey, "LOOKS", LOOKS)
    for stalled_at_turn in range(0, 16, 3):
        taken = asyncio.ensure_future(admit(limiter, SLOW_TOKENS))
        for _ in range(stalled_at_turn):
            await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - the stall
        await taken
        assert limiter.is_shared


async def test_server_that_never_was_there_leaves_local_limits(log: Log) -> None:
    async with opened("unix:///nowhere/valkey.sock", log) as limiter:
        assert await count_admitted(limiter, 20) == 5


async def test_replica_that_never_saw_the_server_limits_by_the_number_that_was_set(log: Log) -> None:
    async with opened("unix:///nowhere/valkey.sock", log, fewest_replicas=2) as limiter:
        assert await count_admitted(limiter, 20) == 2


async def test_replicas_that_never_saw_the_server_count_the_addresses_of_their_name(log: Log) -> None:
    # Two addresses, as a headless Service has; then a name that does not resolve, which leaves the limits as they were.
    for peers, admitted in (("127.0.0.1:7003,127.0.0.2:7003", 2), ("nowhere.invalid:7003", 5)):
        async with opened("unix:///nowhere/valkey.sock", log, peers=peers) as limiter:
            assert await count_admitted(limiter, 20) == admitted


async def test_replicas_that_the_server_knew_are_not_forgotten_for_fewer_addresses(link: Link, log: Log) -> None:
    local = LocalLimiter(FakeClock())
    async with opened(link.url, log, local=local, peers="127.0.0.1:7003") as limiter, opened(link.url, log):
        await until(lambda: local.replicas == 2)
        link.cut()
        await until(lambda: not limiter.is_shared)
        assert local.replicas == 2


async def test_correction_counts_also_while_the_server_is_away(log: Log) -> None:
    async with opened("unix:///nowhere/valkey.sock", log) as limiter:
        await admit(limiter, SLOW_TOKENS, 30)
        assert (await correct(limiter, 20)).remaining_tokens == 10


@pytest.mark.parametrize(
    "url", ["hunter2", "http://host", "redis://:hunter2", "redis://host?pass=hunter2", "redis://host?db=hunter2"]
)
def test_address_that_is_none_is_named_and_not_quoted(url: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_VALKEY_URL") as refused:
        _ = make_client(url)
    assert "hunter2" not in str(refused.value)
