"""Metering's metrics of the ledger and the limits; `auditor.py` registers those of the audit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.chassis.telemetry.metrics import Registry, counters_of, gauge, histograms_of
from services.metering.batch import Writer
from services.metering.sweeper import Sweeper

if TYPE_CHECKING:
    from services.metering.valkey import ValkeyLimiter


def show_books(writer: Writer, sweeper: Sweeper, registry: Registry) -> None:
    counters_of(
        registry,
        "legato_operations",
        "What was asked of the books, by kind; done, or why it was not.",
        ["operation", "outcome"],
        lambda: _outcomes(writer),
    )
    histograms_of(
        registry,
        "legato_batch_operations",
        "Operations that were written together, in one transaction.",
        [],
        lambda: [([], writer.batch_sizes)],
    )
    histograms_of(
        registry,
        "legato_batch_write_seconds",
        "How long it took to write them, the commit included.",
        [],
        lambda: [([], writer.write_times_s)],
    )
    gauge(registry, "legato_operations_waiting", "Operations that wait for the next batch.", lambda: writer.waiting)
    gauge(
        registry,
        "legato_accounts_locked",
        "Accounts whose rows somebody else keeps locked in the database, and for which operations wait.",
        lambda: writer.locked_accounts,
    )
    counters_of(
        registry,
        "legato_settlements_unmatched",
        "Settlements of requests for which no credit was held: each is a mistake to look into.",
        [],
        lambda: [([], writer.unmatched)],
    )
    counters_of(
        registry,
        "legato_holds_swept",
        "Holds that nobody came back for in time: their edge was lost.",
        [],
        lambda: [([], sweeper.swept)],
    )


def show_shared_limits(limiter: "ValkeyLimiter", registry: Registry) -> None:
    gauge(
        registry,
        "legato_limits_shared",
        "Whether limits are kept for all replicas together, or by each for itself, because Valkey is away.",
        lambda: limiter.is_shared,
    )


def _outcomes(writer: Writer) -> Iterator[tuple[tuple[str, str], float]]:
    for (kind, refused_for), number in writer.outcomes.items():
        yield (kind.__name__.lower(), "done" if refused_for is None else refused_for), number
