"""Metering's metrics of the ledger and the limits; `audit/auditor.py` registers those of the audit."""

from typing import TYPE_CHECKING

from services.chassis.telemetry.metrics import Registry
from services.metering.audit.sweeper import Sweeper
from services.metering.credit.batch import Writer
from services.metering.months.passes import Retention

if TYPE_CHECKING:
    from services.metering.limits.valkey import ValkeyLimiter


def show_ledger(writer: Writer, sweeper: Sweeper, registry: Registry) -> None:
    registry.counter(
        "legato_operations",
        "Ledger operations, by kind and outcome: done, or the reason of the refusal.",
        lambda: {
            (kind.__name__.lower(), "done" if refused_for is None else refused_for): number
            for (kind, refused_for), number in writer.outcomes.items()
        },
        "operation",
        "outcome",
    )
    sizes = "Operations per batch, which is one transaction."
    registry.histogram("legato_batch_operations", sizes, lambda: writer.batch_sizes)
    times = "Time to write a batch, including the commit."
    registry.histogram("legato_batch_write_seconds", times, lambda: writer.write_times_s)
    registry.gauge("legato_operations_waiting", "Operations waiting for the next batch.", lambda: writer.waiting)
    locked = "Accounts with operations waiting for a row lock that another database session holds."
    registry.gauge("legato_accounts_locked", locked, lambda: writer.locked_accounts)
    unmatched = "Settlements of requests without a hold. Investigate each one."
    registry.counter("legato_settlements_unmatched", unmatched, lambda: writer.unmatched)
    swept = "Overdue holds that were swept because their edge was lost."
    registry.counter("legato_holds_swept", swept, lambda: sweeper.swept)


def show_retention(retention: Retention, registry: Registry) -> None:
    closed = "Months that this process has closed."
    registry.counter("legato_months_closed", closed, lambda: retention.closed_months)
    pruned = "Rows that this process has pruned, by table."
    registry.counter("legato_rows_pruned", pruned, lambda: retention.pruned, "table")
    due = "Months that are due, and are not closed because the audit finds a violation or a pass failed."
    registry.gauge("legato_months_to_close", due, lambda: retention.months_to_close)
    ahead = "Months after this one for whose entries PostgreSQL has a partition."
    registry.gauge("legato_ledger_months_ahead", ahead, lambda: retention.months_ahead)
    ended = "Time at which this process last ended a pass, or found another process at it; before that, its start."
    registry.gauge("legato_retention_last_pass_timestamp_seconds", ended, lambda: retention.last_pass_s)


def show_shared_limits(limiter: "ValkeyLimiter", registry: Registry) -> None:
    shared = "1 if all replicas share the rate limits, 0 if each enforces its own because Valkey is unavailable."
    registry.gauge("legato_limits_shared", shared, lambda: limiter.is_shared)
