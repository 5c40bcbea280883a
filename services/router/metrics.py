"""Prometheus metrics of the models that the router calls."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from services.chassis.telemetry.metrics import Registry
from services.router.answers.usage_check import Violation
from services.router.completion import Completions
from services.router.routing.model_states import ModelState, ModelStates
from services.router.routing.upstream import OPERATION

# OpenTelemetry's names: the router is the client and the model the server.
MODEL_LABELS: Final = ("gen_ai_provider_name", "gen_ai_request_model")


def _violations(violation: Violation, model: ModelState) -> int:
    return model.breaker.violations[violation]


class _ModelMetric(NamedTuple):
    register: Callable[..., None]
    name: str
    meaning: str
    # Beyond those of the model.
    labels: Sequence[str]
    # A number or a histogram of each model, by the values of these labels.
    readings: Mapping[tuple[str, ...], Callable[[ModelState], Any]]


MODEL_METRICS: Final = (
    _ModelMetric(
        Registry.gauge,
        "legato_breaker_state",
        "Circuit breaker of a model: 0 closed, 1 half-open (one chat at a time), 2 open (tried last).",
        (),
        {(): lambda model: model.breaker.state.value},
    ),
    _ModelMetric(
        Registry.gauge,
        "legato_upstream_running",
        "Running chats at a model.",
        (),
        {(): lambda model: model.saturation.gate.running},
    ),
    _ModelMetric(
        Registry.gauge,
        "legato_upstream_limit",
        "Limit of concurrent chats at a model: fixed, by its queue length, or by latency. 1000000: no limit.",
        (),
        {(): lambda model: model.saturation.gate.limit},
    ),
    _ModelMetric(
        Registry.counter,
        "legato_upstream_attempts",
        "Attempts at a model, by outcome. One that fails in mid-answer also counts as answered.",
        ("outcome",),
        {
            ("answered",): lambda model: model.breaker.answers,
            ("declined",): lambda model: model.breaker.refusals,
            ("failed",): lambda model: model.breaker.failures,
        },
    ),
    _ModelMetric(
        Registry.counter,
        "legato_upstream_violations",
        "Answers with implausible usage or beyond their token limit, by violation.",
        ("violation",),
        {(each.value,): partial(_violations, each) for each in Violation},
    ),
    _ModelMetric(
        Registry.histogram,
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        "Time from the request to the first chunk of the model's answer.",
        ("gen_ai_operation_name",),
        {(OPERATION,): lambda model: model.breaker.latencies_s},
    ),
    _ModelMetric(
        Registry.histogram,
        "gen_ai_client_operation_duration_seconds",
        "Time from the request to the end of the model's answer, for complete answers.",
        ("gen_ai_operation_name",),
        {(OPERATION,): lambda model: model.breaker.durations_s},
    ),
    _ModelMetric(
        Registry.histogram,
        "gen_ai_client_token_usage",
        "Tokens of a chat as the provider reports them, or else as the router counts them.",
        ("gen_ai_operation_name", "gen_ai_token_type"),
        {
            (OPERATION, "input"): lambda model: model.breaker.prompt_tokens,
            (OPERATION, "output"): lambda model: model.breaker.completion_tokens,
        },
    ),
)


def show_model_states(model_states: ModelStates, registry: Registry) -> None:
    """Registers the metrics of all models in the current routes; a removed model is no longer exported."""
    for metric in MODEL_METRICS:
        labels = (*MODEL_LABELS, *metric.labels)
        metric.register(registry, metric.name, metric.meaning, partial(_read, model_states, metric), *labels)


def show_chats(completions: Completions, registry: Registry) -> None:
    registry.histogram(
        "legato_step_duration_seconds",
        "Duration of each step of a chat.",
        lambda: {"prepare": completions.prepare_times_s},
        "step",
    )


def _read(model_states: ModelStates, metric: _ModelMetric) -> dict[tuple[str, ...], Any]:
    """Returns the values of each model; if the routes have it with different limits, the first one counts."""
    found: dict[tuple[str, str], ModelState] = {}
    for model in (model for of_class in model_states.by_class.values() for model in of_class):
        found.setdefault((model.target.provider, model.target.model_name), model)
    return {
        (*labels, *more_labels): read(model)
        for labels, model in found.items()
        for more_labels, read in metric.readings.items()
    }
