"""Auth's metrics for Prometheus."""

from services.auth.audit.rules.copy import AuditCopy
from services.auth.audit.rules.retention import AuditRetention
from services.auth.service import AuthService
from services.chassis.telemetry.metrics import Registry


def show_auth(auth: AuthService, retention: AuditRetention, copy: AuditCopy | None, registry: Registry) -> None:
    verifier, watches = auth.verifier, auth.watches
    deliveries, loop = auth.notice_delivery, auth.notice_loop
    registry.counter(
        "legato_verifications",
        "Key verifications for edges. Edges cache the results, so there are far fewer than requests.",
        lambda: {"verified": verifier.verified, "refused": verifier.refused},
        "outcome",
    )
    registry.gauge("legato_watches", "Edges subscribed to key changes.", lambda: watches.count)
    readable = "1 if auth can read key changes, otherwise 0. While it is 0, edges do not use their cached keys."
    registry.gauge("legato_keys_readable", readable, lambda: watches.can_read)
    registry.counter(
        "legato_notice_deliveries",
        "Attempts to deliver a notice to an account's owners.",
        lambda: {
            (channel.value, "delivered" if is_done else "failed"): count
            for (channel, is_done), count in list(deliveries.attempts.items())
        },
        "channel",
        "outcome",
    )
    registry.gauge(
        "legato_notices_undelivered",
        "Deliveries of notices that are waiting for an attempt, and dead letters, which were given up.",
        lambda: {state.value: count for state, count in loop.undelivered.items()},
        "state",
    )
    if copy is not None:
        lag = "How long events of the audit log, revocations among them, have been waiting for the copy of the log."
        registry.gauge("legato_audit_copy_lag_seconds", lag, lambda: copy.lag_s)
    pruned = "Rows that this process has pruned, by table."
    registry.counter("legato_rows_pruned", pruned, lambda: {"audit_events": retention.pruned}, "table")
