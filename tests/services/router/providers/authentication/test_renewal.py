"""Credentials that are renewed: ahead of time, once at a time, and less often while that fails."""

import asyncio

import pytest

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import LONGEST_DELAY_S, Expiring, Renewal
from tests.services.router.providers.authentication.obtaining import PlayedSource, PlayedTime


@pytest.fixture
def time() -> PlayedTime:
    return PlayedTime()


@pytest.fixture
def source() -> PlayedSource:
    return PlayedSource()


@pytest.fixture
def renewal(source: PlayedSource, time: PlayedTime) -> Renewal[str]:
    return Renewal(source.obtain, time)


async def in_background() -> None:
    """Lets a renewal that nobody waits for end."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_chats_wait_for_one_renewal(renewal: Renewal[str], source: PlayedSource) -> None:
    await asyncio.gather(*(renewal.ready() for _ in range(20)))
    assert renewal.current == "token-1"
    assert source.obtained == 1


async def test_chats_go_on_while_credentials_are_renewed_ahead_of_their_end(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    await renewal.ready()
    time.now_s += 3299
    await renewal.ready()
    assert source.obtained == 1
    time.now_s += 2
    await renewal.ready()
    assert renewal.current == "token-1"
    await in_background()
    assert renewal.current == "token-2"


async def test_short_credentials_are_renewed_in_their_last_fifth(time: PlayedTime) -> None:
    source = PlayedSource(lifetime_s=60)
    renewal = Renewal(source.obtain, time)
    await renewal.ready()
    time.now_s += 47
    await renewal.ready()
    await in_background()
    assert source.obtained == 1
    time.now_s += 2
    await renewal.ready()
    await in_background()
    assert source.obtained == 2


async def test_failed_renewal_fails_no_chat_while_the_credentials_are_valid(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    await renewal.ready()
    source.failures.append("the server is down")
    time.now_s += 3400
    await renewal.ready()
    await in_background()
    assert renewal.failure == "the server is down"
    await renewal.ready()
    assert renewal.current == "token-1"


async def test_renewal_that_failed_is_tried_again_later_and_later(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    source.failures.extend(["down"] * 20)
    for number in range(1, 9):
        with pytest.raises(CredentialsUnavailable, match="down"):
            await renewal.ready()
        # At once, without another request.
        with pytest.raises(CredentialsUnavailable, match="down"):
            await renewal.ready()
        assert source.obtained == number
        time.now_s += min(LONGEST_DELAY_S, 2 ** (number - 1))
    source.failures.clear()
    await renewal.ready()
    assert renewal.failure == ""


async def test_expired_credentials_are_not_used_while_they_cannot_be_renewed(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    await renewal.ready()
    source.failures.append("the server is down")
    time.now_s += 3595
    with pytest.raises(CredentialsUnavailable, match="the server is down"):
        await renewal.ready()


async def test_credentials_that_are_refused_are_renewed_once_for_all_chats(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    await renewal.ready()
    refused = renewal.generation
    assert await asyncio.gather(*(renewal.renew(refused) for _ in range(5))) == [True] * 5
    assert source.obtained == 2
    # Of a chat that was on its way before.
    assert await renewal.renew(refused)
    assert source.obtained == 2


async def test_server_that_refuses_everything_costs_few_renewals(
    renewal: Renewal[str], source: PlayedSource, time: PlayedTime
) -> None:
    await renewal.ready()
    assert await renewal.renew(renewal.generation)
    for _ in range(10):
        assert not await renewal.renew(renewal.generation)
    assert source.obtained == 2
    time.now_s += 11
    assert await renewal.renew(renewal.generation)


async def test_forced_renewal_that_fails_leaves_valid_credentials_in_use(
    renewal: Renewal[str], source: PlayedSource
) -> None:
    await renewal.ready()
    source.failures.append("down")
    assert not await renewal.renew(renewal.generation)
    await renewal.ready()
    assert renewal.current == "token-1"


async def test_chat_that_leaves_does_not_end_the_renewal_that_others_wait_for(
    source: PlayedSource, time: PlayedTime
) -> None:
    opened = asyncio.Event()

    async def obtain() -> Expiring[str]:
        await opened.wait()
        return await source.obtain()

    renewal = Renewal(obtain, time)
    leaving, staying = asyncio.create_task(renewal.ready()), asyncio.create_task(renewal.ready())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    opened.set()
    await staying
    assert renewal.current == "token-1"
    await renewal.aclose()


async def test_renewal_that_runs_ends_with_the_provider(time: PlayedTime) -> None:
    ended = asyncio.Event()

    async def obtain() -> Expiring[str]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    renewal = Renewal(obtain, time)
    waiting = asyncio.create_task(renewal.ready())
    await in_background()
    await renewal.aclose()
    assert ended.is_set()
    await asyncio.gather(waiting, return_exceptions=True)
