"""Auth's metrics for Prometheus."""

from services.auth.audit.retention import AuditRetention
from services.auth.service import AuthService
from services.chassis.telemetry.metrics import Registry, counters_of, gauge, gauges


def show_auth(auth: AuthService, retention: AuditRetention, registry: Registry) -> None:
    verifier, watches = auth.verifier, auth.watches
    deliveries, loop = auth.notice_delivery, auth.notice_loop
    counters_of(
        registry,
        "legato_verifications",
        "Key verifications for edges. Edges cache the results, so there are far fewer than requests.",
        ["outcome"],
        lambda: [(["verified"], verifier.verified), (["refused"], verifier.refused)],
    )
    gauge(registry, "legato_watches", "Edges subscribed to key changes.", lambda: watches.count)
    gauge(
        registry,
        "legato_keys_readable",
        "1 if auth can read key changes, otherwise 0. While it is 0, edges do not use their cached keys.",
        lambda: watches.can_read,
    )
    counters_of(
        registry,
        "legato_notice_deliveries",
        "Attempts to deliver a notice to an account's owners.",
        ["channel", "outcome"],
        lambda: [
            ([channel.value, "delivered" if is_done else "failed"], count)
            for (channel, is_done), count in list(deliveries.attempts.items())
        ],
    )
    gauges(
        registry,
        "legato_notices_undelivered",
        "Deliveries of notices that are waiting for an attempt, and dead letters, which were given up.",
        ["state"],
        lambda: [([state.value], count) for state, count in loop.undelivered.items()],
    )
    counters_of(
        registry,
        "legato_rows_pruned",
        "Rows that this process has pruned, by table.",
        ["table"],
        lambda: [(["audit_events"], retention.pruned)],
    )
