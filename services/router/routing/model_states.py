"""The models that the routes lead to, as they are served: where each is, how busy it is and how well it does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from services.chassis.telemetry.log import Log
from services.chassis.timing.clock import Clock
from services.router.prompts.calibration import Calibration
from services.router.prompts.character import Character
from services.router.providers.base import ProviderRoute
from services.router.providers.http.origin import read_url
from services.router.providers.http.queue_gauge import GaugeAddress, QueueGauge
from services.router.routing.health import BreakerState, CircuitBreaker
from services.router.routing.provider_pool import PooledProvider, PooledProviderKey, ProviderPool
from services.router.routing.queue_watch import QueueWatch
from services.router.routing.routes import Routes, Target
from services.router.routing.saturation import ModelSaturation


@dataclass(frozen=True, slots=True, eq=False)
class ModelState:
    """One model."""

    target: Target
    pooled: PooledProvider
    saturation: ModelSaturation
    health: CircuitBreaker
    calibration: Calibration = field(default_factory=Calibration)


class ModelStates:
    def __init__(
        self,
        routes: Routes,
        provider_pool: ProviderPool,
        clock: Clock,
        log: Log,
        queueing_tolerated_s: float = 0.0,
        local_places: int | None = None,
    ) -> None:
        """`queueing_tolerated_s` is that of models for which the routes name none; `local_places` is how many chats the
        bundled model may have at once, those that wait included."""
        self._provider_pool = provider_pool
        self._clock = clock
        self._log = log
        self._queueing_tolerated_s = queueing_tolerated_s
        self._local_places = local_places
        self._model_states: dict[tuple[ProviderRoute, Target], ModelState] = {}
        self.by_class: Mapping[str, tuple[ModelState, ...]] = {}
        self.characters: Mapping[str, Character] = {}
        self.replace(routes)

    def replace(self, routes: Routes) -> None:
        """From now on, for new chats. What is known of a model that stays as it was is kept."""
        self.characters = routes.characters
        wanted = {
            (routes.providers[target.provider], target) for targets in routes.classes.values() for target in targets
        }
        pooled = self._provider_pool.replace(PooledProviderKey(route, target.timeouts) for route, target in wanted)
        before = self._model_states
        self._model_states = {
            (route, target): before.get((route, target))
            or self._open(route, target, pooled[PooledProviderKey(route, target.timeouts)])
            for route, target in wanted
        }
        self.by_class = {
            class_id: tuple(self._model_states[routes.providers[target.provider], target] for target in targets)
            for class_id, targets in routes.classes.items()
        }

        for key, model_state in before.items():
            if key not in self._model_states and model_state.saturation.queue_watch is not None:
                self._provider_pool.do(model_state.saturation.queue_watch.aclose())

    async def aclose(self) -> None:
        for model_state in self._model_states.values():
            if model_state.saturation.queue_watch is not None:
                await model_state.saturation.queue_watch.aclose()

    def held(self, class_id: str) -> "_Held":
        """Those of a class, in their order. Their connections stay open meanwhile, whatever becomes of the routes."""
        return _Held(self.by_class[class_id])

    def _open(self, route: ProviderRoute, target: Target, pooled: PooledProvider) -> ModelState:
        tolerated_s = self._queueing_tolerated_s if target.queueing_s is None else target.queueing_s
        concurrency = target.concurrency or (self._local_places if route.kind == "local" else None)
        saturation = ModelSaturation(self._clock, tolerated_s, concurrency)
        if target.queue_metrics_url:
            gauge = QueueGauge(_gauge_address(route, target))
            saturation.queue_watch = QueueWatch(gauge, saturation.gate, self._clock, target.queue_most_waiting)
        return ModelState(
            target, pooled, saturation, CircuitBreaker(self._clock, lambda state: self._log_state(target, state))
        )

    def _log_state(self, target: Target, state: BreakerState) -> None:
        event = "target.back" if state is BreakerState.CLOSED else "target.failing"
        self._log.warning(event, provider=target.provider, model_name=target.model_name)


def _gauge_address(route: ProviderRoute, target: Target) -> GaugeAddress:
    """Nobody but the server that the key is for is told it."""
    is_same_server = bool(route.base_url) and read_url(route.base_url)[0] == read_url(target.queue_metrics_url)[0]
    return GaugeAddress(target.queue_metrics_url, target.model_name, route.api_key if is_same_server else "")


class _Held:
    __slots__ = ("_model_states",)

    def __init__(self, model_states: tuple[ModelState, ...]) -> None:
        self._model_states = model_states

    def __enter__(self) -> tuple[ModelState, ...]:
        for model_state in self._model_states:
            model_state.pooled.acquire()
        return self._model_states

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for model_state in self._model_states:
            model_state.pooled.release()
