"""What the router tells Prometheus of the models it asks."""

from collections.abc import Callable, Iterator
from typing import Final

from services.chassis.telemetry.metrics import Histogram, Registry, counters_of, gauges, histograms_of
from services.router.completion import Completions
from services.router.routing.health import BreakerState
from services.router.routing.model_states import Station, Stations
from services.router.spans import OPERATION

# As OpenTelemetry names them: here the router is the client, and the model the server.
MODEL_LABELS: Final = ("gen_ai_provider_name", "gen_ai_request_model")

BREAKER_STATES: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


def show_stations(stations: Stations, registry: Registry) -> None:
    """As the routes name them at this moment. Whatever leaves the routes is told no longer."""

    def read(value: Callable[[Station], float]) -> Iterator[tuple[tuple[str, str], float]]:
        for labels, station in _by_labels(stations):
            yield labels, value(station)

    gauges(
        registry,
        "legato_breaker_state",
        "Whether a model is asked: 0 as usual, 1 by one chat at a time, 2 last of all.",
        MODEL_LABELS,
        lambda: read(lambda station: BREAKER_STATES[station.health.state]),
    )
    gauges(
        registry,
        "legato_upstream_running",
        "Chats at a model.",
        MODEL_LABELS,
        lambda: read(lambda station: station.saturation.gate.running),
    )
    gauges(
        registry,
        "legato_upstream_limit",
        "How many chats a model is given at once: a constant, by its queue, or by latency. A million: no limit.",
        MODEL_LABELS,
        lambda: read(lambda station: station.saturation.gate.limit),
    )
    counters_of(
        registry,
        "legato_upstream_attempts",
        "Times that a model was asked, by what became of it. One that fails in mid-answer has answered, too.",
        (*MODEL_LABELS, "outcome"),
        lambda: _outcomes(stations),
    )
    counters_of(
        registry,
        "legato_upstream_violations",
        "Answers that cannot be as the provider says, or went on beyond their limit, by what they violate.",
        (*MODEL_LABELS, "violation"),
        lambda: _violations(stations),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        "From the question to the first piece of the model's answer.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _latencies(stations),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_duration_seconds",
        "From the question to the end of the model's answer, of those that came to their end.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _durations(stations),
    )
    histograms_of(
        registry,
        "gen_ai_client_token_usage",
        "Tokens of a chat, as the provider counted them, or we where it did not.",
        (*MODEL_LABELS, "gen_ai_operation_name", "gen_ai_token_type"),
        lambda: _tokens(stations),
    )


def show_chats(completions: Completions, registry: Registry) -> None:
    histograms_of(
        registry,
        "legato_step_duration_seconds",
        "How long each step of a chat took.",
        ["step"],
        lambda: [(["prepare"], completions.prepare_times_s)],
    )


def _by_labels(stations: Stations) -> Iterator[tuple[tuple[str, str], Station]]:
    """Each name once, though a model may stand in the routes with different limits: then the first counts."""
    found: dict[tuple[str, str], Station] = {}
    for of_class in stations.by_class.values():
        for station in of_class:
            found.setdefault((station.target.provider, station.target.model_name), station)
    yield from found.items()


def _outcomes(stations: Stations) -> Iterator[tuple[tuple[str, ...], float]]:
    for labels, station in _by_labels(stations):
        health = station.health
        yield (*labels, "answered"), health.answers
        yield (*labels, "declined"), health.refusals
        yield (*labels, "failed"), health.failures


def _violations(stations: Stations) -> Iterator[tuple[tuple[str, ...], float]]:
    for labels, station in _by_labels(stations):
        for violation, number in station.health.violations.items():
            yield (*labels, violation.value), number


def _latencies(stations: Stations) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, station in _by_labels(stations):
        yield (*labels, OPERATION), station.health.latencies_s


def _durations(stations: Stations) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, station in _by_labels(stations):
        yield (*labels, OPERATION), station.health.durations_s


def _tokens(stations: Stations) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, station in _by_labels(stations):
        yield (*labels, OPERATION, "input"), station.health.prompt_tokens
        yield (*labels, OPERATION, "output"), station.health.completion_tokens
