"""Connections to providers, when they are opened and when they are closed."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from services.chassis.telemetry.log import Log
from services.router.providers.base import Piece, ProviderCall, ProviderError, ProviderRoute, Timeouts
from services.router.routing.provider_pool import PooledProvider, PooledProviderKey, ProviderPool


class PlayedProvider:
    def __init__(self, *, is_reachable: bool = True) -> None:
        self.warmed = 0
        self.closed = 0
        self._is_reachable = is_reachable

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        raise NotImplementedError

    async def warm(self) -> None:
        self.warmed += 1
        if not self._is_reachable:
            raise ProviderError("could not be reached")

    async def aclose(self) -> None:
        self.closed += 1


def key(name: str, timeouts: Timeouts | None = None) -> PooledProviderKey:
    return PooledProviderKey(ProviderRoute(name, "openai", f"https://{name}.example/v1"), timeouts or Timeouts())


def provider_of(pooled: PooledProvider) -> PlayedProvider:
    assert isinstance(pooled.provider, PlayedProvider)
    return pooled.provider


async def settled() -> None:
    """Lets other tasks have their turns."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def provider_pool(log: Log) -> ProviderPool:
    return ProviderPool(lambda route, timeouts: PlayedProvider(is_reachable=route.name != "away"), log)


async def test_provider_is_warmed_when_it_is_opened_and_stays_while_it_is_wanted(provider_pool: ProviderPool) -> None:
    first = provider_pool.replace([key("a"), key("a"), key("b")])
    await settled()
    again = provider_pool.replace([key("b"), key("a"), key("c")])
    await settled()
    assert (again[key("a")], again[key("b")]) == (first[key("a")], first[key("b")])
    assert [provider_of(pooled).warmed for pooled in again.values()] == [1, 1, 1]
    await provider_pool.aclose()
    assert [provider_of(pooled).closed for pooled in again.values()] == [1, 1, 1]


async def test_models_with_times_of_their_own_have_a_connection_of_their_own(provider_pool: ProviderPool) -> None:
    assert len(provider_pool.replace([key("a"), key("a", Timeouts(idle_s=1))])) == 2
    await provider_pool.aclose()


async def test_provider_that_cannot_be_warmed_is_only_told(
    provider_pool: ProviderPool, log_text: Callable[[], str]
) -> None:
    away = provider_pool.replace([key("away")])[key("away")]
    await settled()
    assert "provider.not_warmed" in log_text()
    assert "could not be reached" in log_text()
    assert not provider_of(away).closed
    await provider_pool.aclose()


async def test_provider_that_is_gone_from_the_routes_closes_after_its_last_chat(provider_pool: ProviderPool) -> None:
    gone = provider_pool.replace([key("a"), key("b")])[key("a")]
    await settled()
    gone.acquire()
    gone.acquire()
    provider_pool.replace([key("b")])
    gone.release()
    await settled()
    assert not provider_of(gone).closed
    gone.release()
    await settled()
    assert provider_of(gone).closed == 1
    await provider_pool.aclose()
    assert provider_of(gone).closed == 1


async def test_provider_that_nobody_uses_closes_at_once(provider_pool: ProviderPool) -> None:
    gone = provider_pool.replace([key("a")])[key("a")]
    await settled()
    provider_pool.replace([])
    await settled()
    assert provider_of(gone).closed == 1
    await provider_pool.aclose()


async def test_providers_that_chats_still_use_are_closed_with_the_process(provider_pool: ProviderPool) -> None:
    gone = provider_pool.replace([key("a")])[key("a")]
    gone.acquire()
    provider_pool.replace([])
    await provider_pool.aclose()
    assert provider_of(gone).closed == 1
