"""What the router tells Prometheus of the models it asks."""

from collections.abc import Callable, Iterator
from typing import Final

from services.chassis.telemetry.metrics import Histogram, Registry, counters_of, gauges, histograms_of
from services.router.completion import Completions
from services.router.routing.health import BreakerState
from services.router.routing.model_states import ModelState, ModelStates
from services.router.spans import OPERATION

# As OpenTelemetry names them: here the router is the client, and the model the server.
MODEL_LABELS: Final = ("gen_ai_provider_name", "gen_ai_request_model")

BREAKER_STATES: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


def show_model_states(model_states: ModelStates, registry: Registry) -> None:
    """As the routes name them at this moment. Whatever leaves the routes is told no longer."""

    def read(value: Callable[[ModelState], float]) -> Iterator[tuple[tuple[str, str], float]]:
        for labels, model_state in _by_labels(model_states):
            yield labels, value(model_state)

    gauges(
        registry,
        "legato_breaker_state",
        "Whether a model is asked: 0 as usual, 1 by one chat at a time, 2 last of all.",
        MODEL_LABELS,
        lambda: read(lambda model_state: BREAKER_STATES[model_state.health.state]),
    )
    gauges(
        registry,
        "legato_upstream_running",
        "Chats at a model.",
        MODEL_LABELS,
        lambda: read(lambda model_state: model_state.saturation.gate.running),
    )
    gauges(
        registry,
        "legato_upstream_limit",
        "How many chats a model is given at once: a constant, by its queue, or by latency. A million: no limit.",
        MODEL_LABELS,
        lambda: read(lambda model_state: model_state.saturation.gate.limit),
    )
    counters_of(
        registry,
        "legato_upstream_attempts",
        "Times that a model was asked, by what became of it. One that fails in mid-answer has answered, too.",
        (*MODEL_LABELS, "outcome"),
        lambda: _outcomes(model_states),
    )
    counters_of(
        registry,
        "legato_upstream_violations",
        "Answers that cannot be as the provider says, or went on beyond their limit, by what they violate.",
        (*MODEL_LABELS, "violation"),
        lambda: _violations(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        "From the question to the first piece of the model's answer.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _latencies(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_operation_duration_seconds",
        "From the question to the end of the model's answer, of those that came to their end.",
        (*MODEL_LABELS, "gen_ai_operation_name"),
        lambda: _durations(model_states),
    )
    histograms_of(
        registry,
        "gen_ai_client_token_usage",
        "Tokens of a chat, as the provider counted them, or we where it did not.",
        (*MODEL_LABELS, "gen_ai_operation_name", "gen_ai_token_type"),
        lambda: _tokens(model_states),
    )


def show_chats(completions: Completions, registry: Registry) -> None:
    histograms_of(
        registry,
        "legato_step_duration_seconds",
        "How long each step of a chat took.",
        ["step"],
        lambda: [(["prepare"], completions.prepare_times_s)],
    )


def _by_labels(model_states: ModelStates) -> Iterator[tuple[tuple[str, str], ModelState]]:
    """Each name once, though a model may stand in the routes with different limits: then the first counts."""
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
