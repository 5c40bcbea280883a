"""The readiness of this edge for traffic."""

from edge.backends.exchanges import Backends


class Readiness:
    def __init__(self, services: Backends) -> None:
        self._services = services
        # Recovery is done, and every service has answered once.
        self.is_complete = False
        # The process is shutting down.
        self.is_leaving = False

    def missing(self) -> list[str]:
        """Returns what keeps it from serving; empty if ready."""
        reasons = []
        if self.is_leaving:
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
