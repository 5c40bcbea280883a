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


def provider_of(line: PooledProvider) -> PlayedProvider:
    assert isinstance(line.provider, PlayedProvider)
    return line.provider


async def settled() -> None:
    """What was begun beside has had its turns."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def lines(log: Log) -> ProviderPool:
    return ProviderPool(lambda route, timeouts: PlayedProvider(is_reachable=route.name != "away"), log)


async def test_line_is_warmed_when_it_is_opened_and_stays_while_it_is_wanted(lines: ProviderPool) -> None:
    first = lines.replace([key("a"), key("a"), key("b")])
    await settled()
    again = lines.replace([key("b"), key("a"), key("c")])
    await settled()
    assert (again[key("a")], again[key("b")]) == (first[key("a")], first[key("b")])
    assert [provider_of(line).warmed for line in again.values()] == [1, 1, 1]
    await lines.aclose()
    assert [provider_of(line).closed for line in again.values()] == [1, 1, 1]


async def test_models_with_times_of_their_own_have_a_line_of_their_own(lines: ProviderPool) -> None:
    assert len(lines.replace([key("a"), key("a", Timeouts(idle_s=1))])) == 2
    await lines.aclose()


async def test_provider_that_cannot_be_warmed_is_only_told(lines: ProviderPool, log_text: Callable[[], str]) -> None:
    away = lines.replace([key("away")])[key("away")]
    await settled()
    assert "provider.not_warmed" in log_text()
    assert "could not be reached" in log_text()
    assert not provider_of(away).closed
    await lines.aclose()


async def test_line_that_is_gone_from_the_routes_closes_after_its_last_chat(lines: ProviderPool) -> None:
    gone = lines.replace([key("a"), key("b")])[key("a")]
    await settled()
    gone.hold()
    gone.hold()
    lines.replace([key("b")])
    gone.let_go()
    await settled()
    assert not provider_of(gone).closed
    gone.let_go()
    await settled()
    assert provider_of(gone).closed == 1
    await lines.aclose()
    assert provider_of(gone).closed == 1


async def test_line_that_nobody_uses_closes_at_once(lines: ProviderPool) -> None:
    gone = lines.replace([key("a")])[key("a")]
    await settled()
    lines.replace([])
    await settled()
    assert provider_of(gone).closed == 1
    await lines.aclose()


async def test_lines_that_chats_still_use_are_closed_with_the_process(lines: ProviderPool) -> None:
    gone = lines.replace([key("a")])[key("a")]
    gone.hold()
    lines.replace([])
    await lines.aclose()
    assert provider_of(gone).closed == 1
