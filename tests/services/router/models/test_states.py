"""Facts known of a model from the routes alone."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.chassis.load.admission import NO_LIMIT
from services.chassis.telemetry.log import Log
from services.router.models.states import ModelState, ModelStates, _gauge_key
from services.router.prompts.calibration import CountedPrompt
from services.router.providers import open_provider
from services.router.providers.abilities import Abilities
from services.router.providers.base import (
    Piece,
    ProviderCall,
    ProviderError,
    ProviderRoute,
    ProviderUsage,
    Timeouts,
)
from services.router.reasoning.restoring import NOTHING, TakenBack
from services.router.routes.class_route import in_order
from services.router.routes.routes import Routes
from services.router.routes.target import Target
from services.rules.model_classes import CLASSES
from tests.services.router.harness import target
from tests.support.fakes import FakeClock

LOCAL = ProviderRoute("main", "local")
HOST = ProviderRoute("main", "openai", "http://127.0.0.1:1/v1", api_key="secret")

Open = Callable[[ProviderRoute, Target], ModelState]


@pytest.fixture
async def open_model_states(tmp_path: Path, clock: FakeClock, log: Log) -> AsyncIterator[Open]:
    open_in_folder = partial(open_provider, local_model_socket=tmp_path / "model.sock")
    opened: list[ModelStates] = []

    def open_one(route: ProviderRoute, target: Target) -> ModelState:
        routes = Routes({route.name: route}, dict.fromkeys(CLASSES, in_order(target)))
        opened.append(ModelStates(routes, open_in_folder, clock, log, local_places=34))
        return opened[-1].by_class["mezzo"].all[0]

    yield open_one
    for model_states in opened:
        await model_states.aclose()


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
    assert _gauge_key(HOST, replace(target("main"), queue_metrics_url=url)) == api_key


class PlayedProvider:
    telemetry_name = "played"

    def __init__(self, *, is_reachable: bool = True, names: Sequence[str] = ()) -> None:
        self.needs_max_tokens = False
        self.warmed = 0
        self.closed = 0
        self._is_reachable = is_reachable
        # In its certificate.
        self._names = names

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        raise NotImplementedError

    async def warm(self) -> Sequence[str]:
        self.warmed += 1
        if not self._is_reachable:
            raise ProviderError("could not be reached")
        return self._names

    def takes_back(self, model_name: str) -> TakenBack:
        return NOTHING

    def learned(self, model_name: str, abilities: Abilities | None) -> Sequence[str]:
        return ()

    @property
    def credentials_failure(self) -> str:
        return ""

    def use_key(self, api_key: str) -> None:
        self.api_key = api_key

    async def aclose(self) -> None:
        self.closed += 1


class Played:
    """Models of providers that are played; `of` returns the provider of a model."""

    def __init__(self, clock: FakeClock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self.opened: list[PlayedProvider] = []
        self.model_states = ModelStates(self._routes(), self._open, clock, log)

    def replace(self, *targets: Target, **terms: Any) -> None:
        """`terms` are of all providers."""
        self.model_states.replace(self._routes(*targets, **terms))

    def of(self, number: int) -> PlayedProvider:
        provider = self.model_states.by_class["mezzo"].all[number].provider
        assert isinstance(provider, PlayedProvider)
        return provider

    def _open(self, route: ProviderRoute, timeouts: Timeouts) -> PlayedProvider:
        names = ["*.openai.azure.com", "eastus.api.cognitive.microsoft.com"]
        self.opened.append(PlayedProvider(is_reachable=route.name != "away", names=names))
        return self.opened[-1]

    @staticmethod
    def _routes(*targets: Target, **terms: Any) -> Routes:
        named = {
            each.provider: ProviderRoute(each.provider, "openai", "https://a.example/v1", **terms) for each in targets
        }
        return Routes(named, dict.fromkeys(CLASSES, in_order(*targets)))


async def settled() -> None:
    """Lets other tasks have their turns."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def played(clock: FakeClock, log: Log) -> AsyncIterator[Played]:
    played = Played(clock, log)
    yield played
    await played.model_states.aclose()


async def test_provider_is_warmed_when_it_is_opened_and_stays_while_it_is_wanted(played: Played) -> None:
    played.replace(target("a"), target("b"))
    first = played.of(0), played.of(1)
    await settled()
    played.replace(target("b"), target("a"), target("c"))
    await settled()
    assert (played.of(1), played.of(0)) == first
    assert [provider.warmed for provider in played.opened] == [1, 1, 1]
    await played.model_states.aclose()
    assert [provider.closed for provider in played.opened] == [1, 1, 1]


async def test_models_with_times_of_their_own_have_a_connection_of_their_own(played: Played) -> None:
    slow = replace(target("a"), timeouts=Timeouts(idle_s=1))
    played.replace(target("a"), slow, replace(slow, model_name="another"))
    assert len(played.opened) == 2
    assert played.of(1) is played.of(2)


async def test_provider_that_cannot_be_warmed_is_only_told(played: Played, log_text: Callable[[], str]) -> None:
    played.replace(target("away"))
    await settled()
    assert "provider.not_warmed" in log_text()
    assert "could not be reached" in log_text()
    assert not played.of(0).closed


async def test_chats_go_on_at_a_provider_that_is_gone_from_the_routes(played: Played) -> None:
    played.replace(target("a"), target("b"))
    gone = played.of(0)
    played.replace(target("b"))
    await settled()
    assert not gone.closed
    assert [provider.warmed for provider in played.opened] == [1, 1]


async def test_certificate_of_another_region_is_told_and_chats_go_on(
    played: Played, log_text: Callable[[], str]
) -> None:
    played.replace(target("a"), region="canadaeast")
    await settled()
    assert played.model_states.other_regions == {"a": "eastus"}
    assert '"provider.other_region"' in log_text()
    assert not played.of(0).closed
    played.replace(target("a"), region="eastus")
    await settled()
    assert not played.model_states.other_regions


async def test_renewed_promise_leaves_all_else_as_it_is(played: Played) -> None:
    played.replace(target("a"), evidence="contract 1", until=date(2027, 1, 1))
    before = played.model_states.by_class["mezzo"].all
    played.replace(target("a"), evidence="contract 2", until=date(2028, 1, 1))
    assert played.model_states.by_class["mezzo"].all == before
    assert played.model_states.routes.providers["a"].evidence == "contract 2"


async def test_reload_forgets_that_a_server_cut_prompts(played: Played) -> None:
    played.replace(target("a"))
    model_state = played.model_states.by_class["mezzo"].all[0]
    model_state.cut_prompts.record(
        CountedPrompt(9_000, False, "a"), ProviderUsage(2_048, 7, 0), model_state.calibration
    )
    assert model_state.cut_prompts.cuts(9_000)
    played.replace(target("a"))
    assert played.model_states.by_class["mezzo"].all[0] is model_state
    assert not model_state.cut_prompts.cuts(9_000)
