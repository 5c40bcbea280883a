"""Auth's metrics for Prometheus."""

from services.auth.service import AuthService
from services.chassis.telemetry.metrics import Registry, counters_of, gauge


def show_auth(auth: AuthService, registry: Registry) -> None:
    verifier, watches = auth.verifier, auth.watches
    counters_of(
        registry,
        "legato_verifications",
        "Key verifications for edges. Edges cache the results, so there are far fewer than requests.",
        ["outcome"],
        lambda: [(["verified"], verifier.verified.value), (["refused"], verifier.refused.value)],
    )
    gauge(registry, "legato_watches", "Edges subscribed to key changes.", lambda: watches.count)
    gauge(
        registry,
        "legato_keys_readable",
        "1 if auth can read key changes, otherwise 0. While it is 0, edges do not use their cached keys.",
        lambda: watches.can_read,
    )
