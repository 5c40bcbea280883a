"""Whether clients should be sent to this edge."""

from edge.backends.exchanges import Backends


class Readiness:
    def __init__(self, services: Backends) -> None:
        self._services = services
        # What an edge before this one left is settled, and every service has answered once.
        self.is_complete = False
        # The process was asked to end.
        self.is_leaving = False

    def missing(self) -> list[str]:
        """What keeps it from serving; nothing, if it is ready."""
        reasons = []
        if self.is_leaving:
            reasons.append("leaving")
        if not self.is_complete:
            reasons.append("starting")
        return [*reasons, *(name for name, usable in self.usable_replicas().items() if not usable)]

    def usable_replicas(self) -> dict[str, int]:
        """Of each service, how many would be asked now."""
        services = self._services
        return {
            "auth": services.auths.count_usable(),
            "router": services.routers.count_usable(),
            "metering": services.meterings.count_usable(),
        }
