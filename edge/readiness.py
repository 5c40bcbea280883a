"""The readiness of this edge for traffic."""

from collections.abc import Callable

from edge.backends.exchanges import Backends


class Readiness:
    def __init__(self, services: Backends, is_leaving: Callable[[], bool]) -> None:
        """Prepares it; `is_leaving` returns whether the process is shutting down."""
        self._services = services
        self._is_leaving = is_leaving
        # Recovery is done, and every service has answered once.
        self.is_complete = False

    def missing(self) -> list[str]:
        """Returns what keeps it from serving; empty if ready."""
        reasons = []
        if self._is_leaving():
            reasons.append("leaving")
        if not self.is_complete:
            reasons.append("starting")
        return [*reasons, *(name for name, usable in self.usable_replicas().items() if not usable)]

    def usable_replicas(self) -> dict[str, int]:
        """Returns the number of usable replicas by service."""
        services = self._services
        return {
            "auth": services.auths.count_usable(),
            "router": services.routers.count_usable(),
            "metering": services.meterings.count_usable(),
        }
