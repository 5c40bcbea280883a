"""The edge's Prometheus metrics of itself; `edge/chat/chat_metrics.py` has those of its chats."""

from collections.abc import Callable, Sequence

from edge.backends.exchanges import Backends
from edge.billing.journal import SLOTS
from edge.chat.edge_state import EdgeState
from services.chassis.telemetry.metrics import Registry, gauge, gauges, histograms_of


def show_edge(registry: Registry, edge: EdgeState, services: Backends, missing: Callable[[], Sequence[str]]) -> None:
    gauge(registry, "legato_ready", "1 if this edge is ready for requests, otherwise 0.", lambda: not missing())
    gauges(
        registry,
        "legato_replicas_usable",
        "Usable replicas of each service.",
        ["peer"],
        lambda: [([service], usable) for service, usable in services.usable_replicas().items()],
    )
    gauge(registry, "legato_live_streams", "Running chats, streamed or not.", lambda: edge.saturation.gate.running)
    gauge(
        registry,
        "legato_streams_limit",
        "Limit of concurrent chats, adapted to event-loop lag. 1000000: the loop never lagged.",
        lambda: edge.saturation.gate.limit,
    )
    histograms_of(
        registry,
        "legato_loop_lag_seconds",
        "Event-loop lag, sampled 20 times a second.",
        [],
        lambda: [([], edge.saturation.lateness_s)],
    )
    gauge(
        registry,
        "legato_journal_depth",
        "Journal slots in use: running chats, and settlements that metering has not acknowledged.",
        lambda: len(edge.journal.taken),
    )
    gauge(registry, "legato_journal_slots", "Size of the journal, in slots.", lambda: SLOTS)
    gauge(
        registry,
        "legato_settlements_pending",
        "Ended chats whose settlement metering has not acknowledged.",
        lambda: len(edge.metering.settlements.under_way),
    )
    histograms_of(
        registry,
        "legato_settlement_duration_seconds",
        "Time from a chat's end until metering acknowledged its settlement.",
        [],
        lambda: [([], edge.metering.settlements.times_s)],
    )
