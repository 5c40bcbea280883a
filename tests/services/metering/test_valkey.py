import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from services.chassis.clock import SystemClock
from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log
from services.metering.limits import Allowance, LocalLimiter, Rate
from services.metering.valkey import AWAY_S, ValkeyLimiter
from tests.fakes import FakeClock

# So slow that no time passes while a test runs.
SLOW = Rate(1, 5)


@pytest.fixture
async def limiter(valkey_url: str, clock: FakeClock, log: Log) -> AsyncIterator[ValkeyLimiter]:
    limiter = ValkeyLimiter(valkey_url, LocalLimiter(clock), clock, log)
    yield limiter
    await limiter.close()


class Link:
    """A way to the server that can be cut: the client sees a server that went away."""

    def __init__(self, folder: Path, valkey_url: str) -> None:
        self._path = folder / "valkey.sock"
        self._target = valkey_url.removeprefix("unix://")
        self._server: Any = redis.Redis.from_url(valkey_url)
        self.url = f"unix://{self._path}"
        self.join()

    def join(self) -> None:
        self._path.symlink_to(self._target)

    def cut(self) -> None:
        self._path.unlink()
        self._server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def silence(self) -> None:
        self._server.execute_command("CLIENT", "PAUSE", "60000", "WRITE")

    def close(self) -> None:
        self._server.execute_command("CLIENT", "UNPAUSE")
        self._server.close()


@pytest.fixture
def link(socket_folder: Path, valkey_url: str) -> Iterator[Link]:
    link = Link(socket_folder, valkey_url)
    yield link
    link.close()


async def admit(limiter: ValkeyLimiter, rate: Rate = SLOW) -> Allowance:
    return await limiter.admit("key_a", rate, lambda allowance: allowance)


async def count_admitted(limiter: ValkeyLimiter, times: int) -> int:
    outcomes = await asyncio.gather(*(admit(limiter) for _ in range(times)), return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, LegatoError)]
    assert {refusal.reason for refusal in refusals} <= {Reason.RATE_LIMITED}
    assert all(refusal.retry_after_s is not None and 0 < refusal.retry_after_s <= 60 for refusal in refusals)
    return times - len(refusals)


async def test_replicas_share_one_burst(limiter: ValkeyLimiter, valkey_url: str, clock: FakeClock, log: Log) -> None:
    other = ValkeyLimiter(valkey_url, LocalLimiter(clock), clock, log)
    admitted = await asyncio.gather(count_admitted(limiter, 400), count_admitted(other, 400))
    await other.close()
    assert sum(admitted) == 5


async def test_allowance_tells_limit_remaining_and_reset(limiter: ValkeyLimiter) -> None:
    allowance = await admit(limiter)
    assert (allowance.limit_requests, allowance.remaining_requests, allowance.reset_requests_ms) == (1, 4, 60_000)
    assert (await admit(limiter)).remaining_requests == 3


async def test_refused_request_takes_nothing_and_time_gives_back(limiter: ValkeyLimiter) -> None:
    rate = Rate(120, 1)
    await admit(limiter, rate)
    with pytest.raises(LegatoError) as refusal:
        await asyncio.gather(*(admit(limiter, rate) for _ in range(200)))
    assert refusal.value.retry_after_s is not None
    assert refusal.value.retry_after_s <= 0.5
    await asyncio.sleep(refusal.value.retry_after_s)
    await admit(limiter, rate)


async def test_faster_rate_holds_from_the_next_request_on(limiter: ValkeyLimiter) -> None:
    slow = Rate(1, 1)
    await admit(limiter, slow)
    with pytest.raises(LegatoError):
        await admit(limiter, slow)
    assert (await admit(limiter, Rate(3_000, 200))).remaining_requests == 199


async def test_keys_expire_when_their_rate_is_whole(limiter: ValkeyLimiter, valkey_url: str) -> None:
    await admit(limiter)
    with redis.Redis.from_url(valkey_url) as client:
        assert 0 < client.pttl("legato:rate:key_a") <= 60_000


async def test_valkey_that_goes_away_leaves_local_limits_and_is_found_again(
    link: Link, clock: FakeClock, log: Log, log_text: Callable[[], str]
) -> None:
    limiter = ValkeyLimiter(link.url, LocalLimiter(clock), clock, log)
    assert await count_admitted(limiter, 2) == 2
    link.cut()
    # What the shared limit had let in counts here too: no second burst.
    assert await count_admitted(limiter, 20) == 3
    clock.advance(AWAY_S)
    assert await count_admitted(limiter, 20) == 0
    assert log_text().count("limits.local") == 1
    link.join()
    async with asyncio.timeout(10):
        while "limits.shared" not in log_text():
            clock.advance(AWAY_S)
            await count_admitted(limiter, 1)
            await asyncio.sleep(0.01)
    # There only two were ever let in.
    assert await count_admitted(limiter, 20) == 3
    await limiter.close()


async def test_valkey_that_does_not_answer_keeps_nobody_waiting_for_long(
    link: Link, log: Log, log_text: Callable[[], str]
) -> None:
    clock = SystemClock()
    limiter = ValkeyLimiter(link.url, LocalLimiter(clock), clock, log)
    link.silence()
    assert await count_admitted(limiter, 20) == 5
    assert log_text().count("limits.local") == 1
    await limiter.close()


async def test_server_that_never_was_there_leaves_local_limits(clock: FakeClock, log: Log) -> None:
    limiter = ValkeyLimiter("unix:///nowhere/valkey.sock", LocalLimiter(clock), clock, log)
    assert await count_admitted(limiter, 20) == 5
    await limiter.close()
