"""The runtime state of each model in the routes: its connections, load and health."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from services.chassis.http_client.origin import read_url
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.router.prompts.calibration import Calibration
from services.router.providers.base import Provider, ProviderError, ProviderRoute, Timeouts
from services.router.providers.queue_gauge import GaugeAddress, QueueGauge
from services.router.routing.circuit_breaker import BreakerState, CircuitBreaker
from services.router.routing.queue_watch import QueueWatch
from services.router.routing.routes import Routes, Target
from services.router.routing.saturation import ModelSaturation

# The key of a pooled provider: models share its connections unless their timeouts differ.
PooledProviderKey = tuple[ProviderRoute, Timeouts]


class PooledProvider:
    """The connections to one provider, with a count of their users."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._users = 0
        self._on_unused: Callable[[], None] | None = None

    def acquire(self) -> None:
        """Adds a chat that uses it, or may use it."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if self._on_unused is not None and not self._users:
            self._on_unused()

    def when_unused(self, do: Callable[[], None]) -> None:
        """Runs `do` when the last user has released it, or now if there is none."""
        self._on_unused = do
        if not self._users:
            do()


class ProviderPool:
    def __init__(self, open_provider: Callable[[ProviderRoute, Timeouts], Provider], log: Log) -> None:
        self._open_provider = open_provider
        self._log = log
        self._pooled: dict[PooledProviderKey, PooledProvider] = {}
        # Removed from the routes but still used by chats.
        self._retired: set[PooledProvider] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def replace(self, wanted: Iterable[PooledProviderKey]) -> Mapping[PooledProviderKey, PooledProvider]:
        """Opens the providers that are new and retires those no longer wanted."""
        wanted = set(wanted)
        opened = {key: PooledProvider(self._open_provider(*key)) for key in wanted if key not in self._pooled}
        for key in self._pooled.keys() - wanted:
            self._retire(self._pooled.pop(key))
        self._pooled.update(opened)
        for (route, _), pooled in opened.items():
            self.do(self._warm(route.name, pooled))
        return dict(self._pooled)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pooled in (*self._pooled.values(), *self._retired):
            await pooled.provider.aclose()

    async def _warm(self, name: str, pooled: PooledProvider) -> None:
        """Opens a connection ahead of the first chat. A failure is only logged; chats will find out."""
        pooled.acquire()
        try:
            await pooled.provider.warm()
        except ProviderError as error:
            self._log.warning("provider.not_warmed", provider=name, reason=error.what)
        finally:
            pooled.release()

    def _retire(self, pooled: PooledProvider) -> None:
        self._retired.add(pooled)
        pooled.when_unused(lambda: self.do(self._close(pooled)))

    async def _close(self, pooled: PooledProvider) -> None:
        self._retired.discard(pooled)
        await pooled.provider.aclose()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a background task, which is cancelled when the pool closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True, eq=False)
class ModelState:
    """The runtime state of one model."""

    target: Target
    pooled: PooledProvider
    saturation: ModelSaturation
    breaker: CircuitBreaker
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
        """`queueing_tolerated_s` is the default for models without their own; `local_places` is the concurrency limit
        of the bundled model, queued chats included."""
        self._provider_pool = provider_pool
        self._clock = clock
        self._log = log
        self._queueing_tolerated_s = queueing_tolerated_s
        self._local_places = local_places
        self._model_states: dict[tuple[ProviderRoute, Target], ModelState] = {}
        self.by_class: Mapping[str, tuple[ModelState, ...]] = {}
        self.replace(routes)

    def replace(self, routes: Routes) -> None:
        """Applies new routes to new chats. The state of an unchanged model is kept."""
        self.routes = routes
        wanted = {
            (routes.providers[target.provider], target) for targets in routes.classes.values() for target in targets
        }
        pooled = self._provider_pool.replace((route, target.timeouts) for route, target in wanted)
        before = self._model_states
        self._model_states = {
            (route, target): before.get((route, target)) or self._open(route, target, pooled[route, target.timeouts])
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
        """Returns a context manager with the models of a class, in order, which keeps their connections open."""
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
    """Builds the gauge's address; the API key is sent only to the server that it belongs to."""
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
