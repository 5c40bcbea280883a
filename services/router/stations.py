"""The models that the routes lead to, as they are served: where each is, how busy it is and how well it does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from services.chassis.clock import Clock
from services.chassis.log import Log
from services.router.calibration import Calibration
from services.router.character import Character
from services.router.health import Health, State
from services.router.lines import Line, LineKey, Lines
from services.router.providers.base import ProviderRoute
from services.router.routes import Routes, Target
from services.router.saturation import QUEUEING_TOLERATED_S, Saturation


@dataclass(frozen=True, slots=True, eq=False)
class Station:
    """One model."""

    target: Target
    line: Line
    saturation: Saturation
    health: Health
    calibration: Calibration = field(default_factory=Calibration)


class Stations:
    def __init__(
        self, routes: Routes, lines: Lines, clock: Clock, log: Log, queueing_tolerated_s: float = QUEUEING_TOLERATED_S
    ) -> None:
        self._lines = lines
        self._clock = clock
        self._log = log
        self._queueing_tolerated_s = queueing_tolerated_s
        self._stations: dict[tuple[ProviderRoute, Target], Station] = {}
        self.by_class: Mapping[str, tuple[Station, ...]] = {}
        self.characters: Mapping[str, Character] = {}
        self.replace(routes)

    def replace(self, routes: Routes) -> None:
        """From now on, for new chats. What is known of a model that stays as it was is kept."""
        self.characters = routes.characters
        wanted = {
            (routes.providers[target.provider], target) for targets in routes.classes.values() for target in targets
        }
        lines = self._lines.replace(LineKey(route, target.timeouts) for route, target in wanted)
        self._stations = {
            (route, target): self._stations.get((route, target))
            or self._open(target, lines[LineKey(route, target.timeouts)])
            for route, target in wanted
        }
        self.by_class = {
            class_id: tuple(self._stations[routes.providers[target.provider], target] for target in targets)
            for class_id, targets in routes.classes.items()
        }

    def held(self, class_id: str) -> "_Held":
        """Those of a class, in their order. Their lines stay open meanwhile, whatever becomes of the routes."""
        return _Held(self.by_class[class_id])

    def _open(self, target: Target, line: Line) -> Station:
        saturation = Saturation(self._clock, self._queueing_tolerated_s, target.concurrency)
        return Station(target, line, saturation, Health(self._clock, lambda state: self._tell(target, state)))

    def _tell(self, target: Target, state: State) -> None:
        event = "target.back" if state is State.CLOSED else "target.failing"
        self._log.warning(event, provider=target.provider, model_name=target.model_name)


class _Held:
    __slots__ = ("_stations",)

    def __init__(self, stations: tuple[Station, ...]) -> None:
        self._stations = stations

    def __enter__(self) -> tuple[Station, ...]:
        for station in self._stations:
            station.line.hold()
        return self._stations

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for station in self._stations:
            station.line.let_go()
