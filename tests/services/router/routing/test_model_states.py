"""Facts known of a model from the routes alone."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.load.admission import NO_LIMIT
from services.chassis.telemetry.log import Log
from services.router.providers import open_provider
from services.router.providers.base import (
    Piece,
    ProviderCall,
    ProviderEnvironment,
    ProviderError,
    ProviderRoute,
    Timeouts,
)
from services.router.routing.model_states import (
    ModelState,
    ModelStates,
    PooledProvider,
    PooledProviderKey,
    ProviderPool,
    _gauge_address,
)
from services.router.routing.routes import Routes, Target
from services.rules.model_classes import CLASSES
from tests.services.router.harness import target
from tests.support.fakes import FakeClock

LOCAL = ProviderRoute("main", "local")
HOST = ProviderRoute("main", "openai", "http://127.0.0.1:1/v1", api_key="secret")

Open = Callable[[ProviderRoute, Target], ModelState]


@pytest.fixture
async def open_model_states(tmp_path: Path, clock: FakeClock, log: Log) -> AsyncIterator[Open]:
    provider_pool = ProviderPool(
        lambda route, timeouts: open_provider(route, ProviderEnvironment(timeouts, tmp_path / "model.sock")), log
    )
    opened: list[ModelStates] = []

    def open_one(route: ProviderRoute, target: Target) -> ModelState:
        routes = Routes({route.name: route}, dict.fromkeys(CLASSES, (target,)))
        opened.append(ModelStates(routes, provider_pool, clock, log, local_places=34))
        return opened[-1].by_class["mezzo"][0]

    yield open_one
    for model_states in opened:
        await model_states.aclose()
    await provider_pool.aclose()


async def test_bundled_model_has_its_slots_and_those_who_may_wait(open_model_states: Open) -> None:
    gate = open_model_states(LOCAL, target("main")).saturation.gate
    assert gate.limit == 34
    assert open_model_states(LOCAL, replace(target("main"), concurrency=3)).saturation.gate.limit == 3


async def test_any_other_model_has_no_limit_of_ours(open_model_states: Open) -> None:
    model_state = open_model_states(HOST, target("main"))
    assert model_state.saturation.gate.limit == NO_LIMIT
    assert model_state.saturation.queue_watch is None


async def test_queue_is_looked_at_where_the_routes_say_so(open_model_states: Open) -> None:
    model_state = open_model_states(HOST, replace(target("main"), queue_metrics_url="http://127.0.0.1:1/metrics"))
    assert model_state.saturation.queue_watch is not None


@pytest.mark.parametrize(
    ("url", "api_key"),
    [
        ("http://127.0.0.1:1/metrics", "secret"),
        ("http://127.0.0.1:2/metrics", ""),
        ("http://elsewhere.test:1/metrics", ""),
    ],
)
def test_provider_s_key_is_sent_to_its_own_server_alone(url: str, api_key: str) -> None:
    assert _gauge_address(HOST, replace(target("main"), queue_metrics_url=url)).api_key == api_key


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
    return ProviderRoute(name, "openai", f"https://{name}.example/v1"), timeouts or Timeouts()


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


async def test_unused_provider_closes_at_once(provider_pool: ProviderPool) -> None:
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
