"""Facts known of a model from the routes alone."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.load.admission import NO_LIMIT
from services.chassis.telemetry.log import Log
from services.router.providers import open_provider
from services.router.providers.base import ProviderEnvironment, ProviderRoute
from services.router.routing.model_states import ModelState, ModelStates, _gauge_address
from services.router.routing.provider_pool import ProviderPool
from services.router.routing.routes import CLASSES, Routes, Target
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
