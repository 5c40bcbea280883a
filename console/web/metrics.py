"""The console's Prometheus metrics."""

from collections.abc import Callable
from typing import Final

from services.chassis.telemetry.metrics import Registry

PAGE_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class PageMetrics:
    def __init__(self, registry: Registry) -> None:
        self._pages = registry.counts(
            "legato_console_pages", "Answered requests of the console, by page and status.", "page", "status"
        )
        self._durations_s = registry.histograms(
            "legato_console_page_duration_seconds", "Time to answer a page.", PAGE_BOUNDS_S, "page"
        )

    def answered(self, page: str, status: int, took_s: float) -> None:
        self._pages[page, str(status)] += 1
        self._durations_s[page,].observe(took_s)


def show_replicas(registry: Registry, usable: Callable[[], dict[str, int]]) -> None:
    meaning = "Usable replicas of each service, as the console sees them."
    registry.gauge("legato_console_replicas_usable", meaning, usable, "peer")
