"""The edge's Prometheus metrics of itself; `edge/chat/chat_metrics.py` has those of its chats."""

from collections.abc import Callable, Sequence

from edge.backends.exchanges import Backends
from edge.backends.outage_wait import OutageWait
from edge.billing.journal import SLOTS
from edge.chat.edge_state import EdgeState
from services.chassis.telemetry.metrics import Registry


def show_edge(
    registry: Registry, edge: EdgeState, services: Backends, waits: OutageWait, missing: Callable[[], Sequence[str]]
) -> None:
    registry.gauge("legato_ready", "1 if this edge is ready for requests, otherwise 0.", lambda: not missing())
    registry.gauge("legato_replicas_usable", "Usable replicas of each service.", services.usable_replicas, "peer")
    silences = "Connected replicas of each service that sent nothing for two seconds: new calls went elsewhere."
    registry.counter("legato_replica_silences", silences, lambda: services.silences, "peer")
    waiting = "Requests that wait while auth, metering or their database is away."
    registry.gauge("legato_requests_waiting", waiting, lambda: waits.requests)
    registry.gauge("legato_requests_waiting_bytes", "Bodies of these requests.", lambda: waits.held_bytes)
    ended = "Waits that ended, or could not begin, by outcome."
    registry.counter("legato_waits", ended, lambda: waits.outcomes, "outcome")
    registry.gauge("legato_live_streams", "Running chats, streamed or not.", lambda: edge.saturation.gate.running)
    limit = "Limit of concurrent chats, adapted to event-loop lag. 1000000: the loop never lagged."
    registry.gauge("legato_streams_limit", limit, lambda: edge.saturation.gate.limit)
    lag = "Event-loop lag, sampled 20 times a second."
    registry.histogram("legato_loop_lag_seconds", lag, lambda: edge.saturation.lateness_s)
    depth = "Journal slots in use: running chats, and settlements that metering has not acknowledged."
    registry.gauge("legato_journal_depth", depth, lambda: len(edge.journal.taken))
    registry.gauge("legato_journal_slots", "Size of the journal, in slots.", lambda: SLOTS)
    pending = "Ended chats whose settlement metering has not acknowledged."
    registry.gauge("legato_settlements_pending", pending, lambda: len(edge.metering.settlements.under_way))
    times = "Time from a chat's end until metering acknowledged its settlement."
    registry.histogram("legato_settlement_duration_seconds", times, lambda: edge.metering.settlements.times_s)
