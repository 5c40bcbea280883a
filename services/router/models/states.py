"""The runtime state of each model in the routes: its connections, load and health."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from services.chassis.http_client.origin import read_url
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.router.answers.usage_check import Violation
from services.router.models.answer_pace import AnswerPace
from services.router.models.call_result import CallObserver
from services.router.models.circuit_breaker import BreakerState, CircuitBreaker
from services.router.models.cut_prompts import CutPrompts
from services.router.models.fleet_limits import FleetLimits
from services.router.models.learned_token_counts import LearnedTokenCounts
from services.router.models.queue_watch import QueueGauge, QueueWatch
from services.router.models.recent_health import RecentHealth
from services.router.models.recent_speed import RecentSpeed
from services.router.models.saturation import ModelSaturation
from services.router.models.spending import Spending
from services.router.prompts.calibration import Calibration
from services.router.providers.base import Provider, ProviderError, ProviderRoute, Timeouts
from services.router.routes.class_route import ClassRoute
from services.router.routes.region import find_other_region
from services.router.routes.routes import Routes
from services.router.routes.target import Target

OpenProvider = Callable[[ProviderRoute, Timeouts], Provider]


@dataclass(frozen=True, slots=True, eq=False)
class ModelState:
    """The runtime state of one model."""

    target: Target
    provider: Provider
    saturation: ModelSaturation
    breaker: CircuitBreaker
    recent_health: RecentHealth
    spending: Spending = field(default_factory=Spending)
    calibration: Calibration = field(default_factory=Calibration)
    cut_prompts: CutPrompts = field(default_factory=CutPrompts)
    pace: AnswerPace = field(default_factory=AnswerPace)
    # Those that learn of the calls to the model, beside its circuit breaker.
    observers: tuple[CallObserver, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedModel:
    """A member of a tier."""

    model_state: ModelState
    weight: int


@dataclass(frozen=True, slots=True)
class ClassModels:
    """The models of a class, in the tiers of its route."""

    route: ClassRoute
    tiers: tuple[tuple[WeightedModel, ...], ...]
    # All of them, in order of preference.
    all: tuple[ModelState, ...]
    # Whether it matters which conversation a chat is a turn of.
    needs_conversations: bool = False
    # Whether one of them can continue an answer that another began.
    may_continue: bool = False
    # All models that the route names, those that only a trial calls among them.
    of_route: tuple[ModelState, ...] = ()
    # Whether tool calls in their answers are judged.
    judges_tool_calls: bool = False
    # Why models are called that a trial calls.
    roles: Mapping[ModelState, str] = field(default_factory=dict)


class ClassObserver(CallObserver):
    """Learns of the calls to all models, and of the models of each class."""

    def follow(self, by_class: Mapping[str, ClassModels]) -> None:
        """Is called when the routes were applied."""


class ModelStates:
    def __init__(
        self,
        routes: Routes,
        open_provider: OpenProvider,
        clock: Clock,
        log: Log,
        local_places: int | None = None,
        limits: FleetLimits | None = None,
        observers: Sequence[ClassObserver] = (),
    ) -> None:
        """`local_places` is the concurrency limit of the bundled model, queued chats included. Without `limits`, those
        of models are of this router alone. `observers` learn of all calls."""
        self._open_provider = open_provider
        self._clock = clock
        self._log = log
        self._local_places = local_places
        self._limits = limits or FleetLimits(clock, log)
        # Models share the connections to a provider unless their timeouts differ.
        self._providers: dict[tuple[ProviderRoute, Timeouts], Provider] = {}
        self._model_states: dict[tuple[ProviderRoute, Target], ModelState] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._observers = observers
        self.by_class: Mapping[str, ClassModels] = {}
        self.recent_speed = RecentSpeed(clock)
        # Providers whose certificate names another region than the routes, with that region.
        self.other_regions: dict[str, str] = {}
        self.replace(routes)

    def replace(self, routes: Routes) -> None:
        """Applies new routes to new chats. The state of an unchanged model is kept, and so are its connections. Others
        end with the chats that use them, or soon by themselves."""
        self.routes = routes
        classes = routes.classes.values()
        wanted = {(routes.providers[target.provider], target) for route in classes for target in route.targets}
        keys = {(route, target.timeouts) for route, target in wanted}
        self._providers = {key: self._providers.get(key) or self._open_and_warm(*key) for key in keys}
        before = self._model_states
        self._model_states = {key: before.get(key) or self._open(*key) for key in wanted}
        for key, name in _limit_names(routes).items():
            target, saturation = key[1], self._model_states[key].saturation
            if target.concurrency and saturation.share is None:
                saturation.limit_by(self._limits.share_of(name, target.concurrency, saturation.gate))
        self.by_class = {class_id: self._models_of(route) for class_id, route in routes.classes.items()}
        for observer in self._observers:
            observer.follow(self.by_class)
        for key, model_state in before.items():
            # Its server may have got a larger window.
            model_state.cut_prompts.forget()
            if key not in self._model_states and model_state.saturation.queue_watch is not None:
                self._start(model_state.saturation.queue_watch.aclose())
        self.use_keys(routes.providers)

    def use_keys(self, providers: Mapping[str, ProviderRoute]) -> None:
        """Takes over the API keys of providers, in which nothing else has changed."""
        self.routes = replace(self.routes, providers=providers)
        for (route, _), provider in self._providers.items():
            provider.use_key(providers[route.name].api_key)
        for (route, target), model_state in self._model_states.items():
            if model_state.saturation.queue_watch is not None:
                model_state.saturation.queue_watch.gauge.use_key(_gauge_key(providers[route.name], target))

    def credentials_failure(self, provider: str) -> str:
        """Returns why a provider's credentials could not be renewed; empty if they were, or there are none."""
        opened = (each for (route, _), each in self._providers.items() if route.name == provider)
        return next((each.credentials_failure for each in opened if each.credentials_failure), "")

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for model_state in self._model_states.values():
            if model_state.saturation.queue_watch is not None:
                await model_state.saturation.queue_watch.aclose()
        for provider in self._providers.values():
            await provider.aclose()

    def _models_of(self, route: ClassRoute) -> ClassModels:
        tiers = tuple(
            tuple(WeightedModel(self._state_of(member.target), member.weight) for member in tier)
            for tier in route.tiers
        )
        takes_cache_key = any(self.routes.providers[target.provider].prompt_cache_key for target in route.targets)
        return ClassModels(
            route,
            tiers,
            tuple(member.model_state for tier in tiers for member in tier),
            needs_conversations=takes_cache_key or any(len(tier) > 1 for tier in tiers),
            may_continue=any(target.continues is not None for target in route.targets),
            of_route=tuple(map(self._state_of, route.targets)),
        )

    def _state_of(self, target: Target) -> ModelState:
        return self._model_states[self.routes.providers[target.provider], target]

    def _open_and_warm(self, route: ProviderRoute, timeouts: Timeouts) -> Provider:
        provider = self._open_provider(route, timeouts)
        self._start(self._warm(route, provider))
        return provider

    async def _warm(self, route: ProviderRoute, provider: Provider) -> None:
        """Opens a connection ahead of the first chat. A failure is only logged, since chats will find out, and so is a
        server that lies elsewhere by its certificate."""
        self.other_regions.pop(route.name, None)
        try:
            names = await provider.warm()
        except ProviderError as error:
            self._log.warning("provider.not_warmed", provider=route.name, reason=error.what)
            return
        if other_region := find_other_region(route.region, names):
            self.other_regions[route.name] = other_region
            reason = f"its certificate names {other_region}, and not {route.region}"
            self._log.warning("provider.other_region", provider=route.name, reason=reason)

    def _start(self, work: Coroutine[object, None, None]) -> None:
        """Runs a background task, which is cancelled at the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open(self, route: ProviderRoute, target: Target) -> ModelState:
        concurrency = target.concurrency or (self._local_places if route.kind == "local" else None)
        saturation = ModelSaturation(self._clock, concurrency)
        if target.queue_metrics_url:
            gauge = QueueGauge(target.queue_metrics_url, target.model_name)
            saturation.watch(QueueWatch(gauge, saturation.gate, self._clock, target.queue_most_waiting))
        breaker = CircuitBreaker(self._clock, lambda state: self._log_state(target, state))
        recent_health = RecentHealth(self._clock)
        spending, calibration, pace = Spending(target.cost), Calibration(), AnswerPace()
        cut_prompts = CutPrompts(self._clock, partial(self._log_cut, target))
        counts = LearnedTokenCounts(calibration, cut_prompts, partial(breaker.violated, Violation.PROMPT_CUT))
        return ModelState(
            target,
            self._providers[route, target.timeouts],
            saturation,
            breaker,
            recent_health,
            spending,
            calibration,
            cut_prompts,
            pace,
            # All that learn of calls; the circuit breaker does by its part in each, an `Attempt`.
            observers=(recent_health, counts, spending, pace, *self._observers),
        )

    def _log_cut(self, target: Target, tokens: int, model_tokens: int) -> None:
        self._log.warning(
            "model.cut_prompt",
            provider=target.provider,
            model_name=target.model_name,
            prompt_tokens=model_tokens,
            reason=f"we count {tokens} tokens",
        )

    def _log_state(self, target: Target, state: BreakerState) -> None:
        event = "target.back" if state is BreakerState.CLOSED else "target.failing"
        self._log.warning(event, provider=target.provider, model_name=target.model_name)


def _limit_names(routes: Routes) -> dict[tuple[ProviderRoute, Target], str]:
    """Names the limit of each model that has one, the same in each process with these routes. Of several entries for
    the same model of a provider, each has its own."""
    names: dict[tuple[ProviderRoute, Target], str] = {}
    entries: Counter[str] = Counter()
    for class_id in sorted(routes.classes):
        for target in routes.classes[class_id].targets:
            key = (routes.providers[target.provider], target)
            if target.concurrency and key not in names:
                name = f"{target.provider}/{target.model_name}"
                entries[name] += 1
                names[key] = name if entries[name] == 1 else f"{name} #{entries[name]}"
    return names


def _gauge_key(route: ProviderRoute, target: Target) -> str:
    """Returns the API key if the gauge is of the server that it belongs to; no other is sent it."""
    is_same_server = bool(route.base_url) and read_url(route.base_url)[0] == read_url(target.queue_metrics_url)[0]
    return route.api_key if is_same_server else ""
