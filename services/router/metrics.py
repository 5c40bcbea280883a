"""Prometheus metrics of the models that the router calls."""

from collections.abc import Callable, Iterator
from typing import Final

from services.chassis.telemetry.metrics import Histogram, Registry, counters_of, gauges, histograms_of
from services.router.completion import Completions
from services.router.routing.call_span import OPERATION
from services.router.routing.circuit_breaker import BreakerState
from services.router.routing.model_states import ModelState, ModelStates

# OpenTelemetry's names: the router is the client and the model the server.
MODEL_LABELS: Final = ("gen_ai_provider_name", "gen_ai_request_model")

BREAKER_STATES: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


def show_model_states(model_states: ModelStates, registry: Registry) -> None:
    """Registers the metrics of all models in the current routes; a removed model is no longer exported."""

    def read(value: Callable[[ModelState], float]) -> Iterator[tuple[tuple[str, str], float]]:
        for labels, model_state in _by_labels(model_states):
            yield labels, value(model_state)

    gauges(
        registry,
        "legato_breaker_state",
        "Circuit breaker of a model: 0 closed, 1 half-open (one chat at a time), 2 open (tried last).",
        MODEL_LABELS,
        lambda: read(lambda model_state: BREAKER_STATES[model_state.health.state]),
    )
    gauges(
        registry,
        "legato_upstream_running",
        "Running chats at a model.",
        MODEL_LABELS,
        lambda: read(lambda model_state: model_state.saturation.gate.running),
    )
    gauges(
        registry,
        "legato_upstream_limit",
        "Limit of concurrent chats at a model: fixed, by its queue length, or by latency. 1000000: no limit.",
        MODEL_LABELS,
        lambda: read(lambda model_state: model_state.saturation.gate.limit),
    )
    counters_of(
        registry,
        "legato_upstream_attempts",
        "Attempts at a model, by outcome. One that fails in mid-answer also counts as answered.",
        (*MODEL_LABELS, "outcome"),
        lambda: _outcomes(model_states),
    )
    counters_of(
        registry,
        "legato_upstream_violations",
        "Answers with implausible usage or beyond their token limit, by violation.",
        (*MODEL_LABELS, "violation"),
        lambda: _violations(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        "Time from the request to the first chunk of the model's answer.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _latencies(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_duration_seconds",
        "Time from the request to the end of the model's answer, for complete answers.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _durations(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_token_usage",
        "Tokens of a chat as the provider reports them, or else as the router counts them.",
        (*MODEL_LABELS, "gen_ai_operation_name", "gen_ai_token_type"),
        lambda: _tokens(model_states),
    )


def show_chats(completions: Completions, registry: Registry) -> None:
    histograms_of(
        registry,
        "legato_step_duration_seconds",
        "Duration of each step of a chat.",
        ["step"],
        lambda: [(["prepare"], completions.prepare_times_s)],
    )


def _by_labels(model_states: ModelStates) -> Iterator[tuple[tuple[str, str], ModelState]]:
    """Yields each model once; if the routes have it with different limits, the first one counts."""
    found: dict[tuple[str, str], ModelState] = {}
    for of_class in model_states.by_class.values():
        for model_state in of_class:
            found.setdefault((model_state.target.provider, model_state.target.model_name), model_state)
    yield from found.items()


def _outcomes(model_states: ModelStates) -> Iterator[tuple[tuple[str, ...], float]]:
    for labels, model_state in _by_labels(model_states):
        health = model_state.health
        yield (*labels, "answered"), health.answers
        yield (*labels, "declined"), health.refusals
        yield (*labels, "failed"), health.failures


def _violations(model_states: ModelStates) -> Iterator[tuple[tuple[str, ...], float]]:
    for labels, model_state in _by_labels(model_states):
        for violation, number in model_state.health.violations.items():
            yield (*labels, violation.value), number


def _latencies(model_states: ModelStates) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, model_state in _by_labels(model_states):
        yield (*labels, OPERATION), model_state.health.latencies_s


def _durations(model_states: ModelStates) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, model_state in _by_labels(model_states):
        yield (*labels, OPERATION), model_state.health.durations_s


def _tokens(model_states: ModelStates) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    for labels, model_state in _by_labels(model_states):
        yield (*labels, OPERATION, "input"), model_state.health.prompt_tokens
        yield (*labels, OPERATION, "output"), model_state.health.completion_tokens
