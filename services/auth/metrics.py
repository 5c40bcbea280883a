"""What auth tells Prometheus of itself."""

from services.auth.service import AuthService
from services.chassis.telemetry.metrics import Registry, counters_of, gauge


def show_auth(auth: AuthService, registry: Registry) -> None:
    verifier, watches = auth.verifier, auth.watches
    counters_of(
        registry,
        "legato_verifications",
        "Keys that edges asked about: they remember the answers, so these are far fewer than requests.",
        ["outcome"],
        lambda: [(["verified"], verifier.verified.value), (["refused"], verifier.refused.value)],
    )
    gauge(registry, "legato_watches", "Edges that are kept up to date about keys.", lambda: watches.count)
    gauge(
        registry,
        "legato_keys_readable",
        "Whether auth can read what changes about keys. While it cannot, edges trust nothing that they remember.",
        lambda: watches.can_read,
    )
