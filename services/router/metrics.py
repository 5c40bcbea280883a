"""Prometheus metrics of the models that the router calls."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from services.chassis.telemetry.metrics import Registry
from services.router.answers.usage_check import Violation
from services.router.calls.call_span import OPERATION
from services.router.chat.completion import Completions
from services.router.models.spending import KINDS
from services.router.models.states import ModelState, ModelStates
from services.router.providers.http.telemetry_names import MODEL_LABELS
from services.router.routes.key_watch import KeyWatch
from services.router.routes.retention_promise import lapses_at_s
from services.router.routes.watch import RouteWatch
from services.router.trials.outcomes import OutcomesByClass

OPERATION_LABELS: Final = (*MODEL_LABELS, "gen_ai_operation_name")
# A number or a histogram of each model, by the values of labels beyond those of the model.
_Readings = Mapping[tuple[str, ...], Callable[[ModelState], Any]]


def show_model_states(model_states: ModelStates, registry: Registry) -> None:
    """Registers the metrics of all models in the current routes; a removed model is no longer exported."""

    def of_models(readings: _Readings) -> Callable[[], dict[tuple[str, ...], Any]]:
        return lambda: _read(model_states, readings)

    version = "1 for the version of the routes in use: the same on every router whose file says the same."
    registry.gauge("legato_routes_info", version, lambda: {model_states.routes.version: 1}, "version")
    show_providers(model_states, registry)
    breaker = "Circuit breaker of a model: 0 closed, 1 half-open (one chat at a time), 2 open (tried last)."
    states = of_models({(): lambda model: model.breaker.state.value})
    registry.gauge("legato_breaker_state", breaker, states, *MODEL_LABELS)
    running = of_models({(): lambda model: model.saturation.gate.running})
    registry.gauge("legato_upstream_running", "Running chats at a model.", running, *MODEL_LABELS)
    limit = "Limit of concurrent chats at a model: fixed, or by its queue length. 1000000: no limit."
    limits = of_models({(): lambda model: model.saturation.gate.limit})
    registry.gauge("legato_upstream_limit", limit, limits, *MODEL_LABELS)
    show_shares(model_states, registry)
    attempts = of_models(
        {
            ("answered",): lambda model: model.breaker.answers,
            ("declined",): lambda model: model.breaker.refusals,
            ("failed",): lambda model: model.breaker.failures,
        }
    )
    attempt = "Attempts at a model, by outcome. One that fails in mid-answer also counts as answered."
    registry.counter("legato_upstream_attempts", attempt, attempts, *MODEL_LABELS, "outcome")
    calls = of_models({(): lambda model: model.breaker.attempts})
    registry.counter("legato_upstream_calls", "Calls to a model that were begun.", calls, *MODEL_LABELS)
    violation = "Answers with implausible usage or beyond their token limit, by violation."
    violations = of_models({(each.value,): partial(_violations, each) for each in Violation})
    registry.counter("legato_upstream_violations", violation, violations, *MODEL_LABELS, "violation")
    first_chunk = "Time from the request to the first chunk of the model's answer."
    latencies_s = of_models({(OPERATION,): lambda model: model.breaker.latencies_s})
    name = "gen_ai_client_operation_time_to_first_chunk_seconds"
    registry.histogram(name, first_chunk, latencies_s, *OPERATION_LABELS)
    duration = "Time from the request to the end of the model's answer, for complete answers."
    durations_s = of_models({(OPERATION,): lambda model: model.breaker.durations_s})
    registry.histogram("gen_ai_client_operation_duration_seconds", duration, durations_s, *OPERATION_LABELS)
    usage = "Tokens of a chat as the provider reports them, or else as the router counts them."
    tokens = of_models(
        {
            (OPERATION, "input"): lambda model: model.breaker.prompt_tokens,
            (OPERATION, "output"): lambda model: model.breaker.completion_tokens,
        }
    )
    registry.histogram("gen_ai_client_token_usage", usage, tokens, *OPERATION_LABELS, "gen_ai_token_type")
    charged = (
        "Tokens of a model by what its provider charges for them: the cached share is cached_input of all but output."
    )
    kinds = of_models({(kind,): partial(_tokens, kind) for kind in KINDS})
    registry.counter("legato_upstream_tokens", charged, kinds, *MODEL_LABELS, "kind")
    cost = "What a provider charges for the tokens of a model, by the cost that the routes state."
    costs = of_models({(kind,): partial(_cost_nanos, kind) for kind in KINDS})
    registry.counter("legato_upstream_cost_nanodollars", cost, costs, *MODEL_LABELS, "kind")


def show_outcomes(outcomes: OutcomesByClass, registry: Registry) -> None:
    """Registers what compares the models of a class with each other."""
    call = "Calls in classes of several models, by the role of the model and by outcome: answered, or the error's kind."
    labels = ("class", "role", *MODEL_LABELS, "outcome")
    registry.counter("legato_class_calls", call, lambda: _calls(outcomes), *labels)
    tokens = "Tokens of complete answers in these classes, by the role of the model."
    labels = ("class", "role", *MODEL_LABELS, "gen_ai_token_type")
    registry.counter("legato_class_tokens", tokens, lambda: _class_tokens(outcomes), *labels)


def show_providers(model_states: ModelStates, registry: Registry) -> None:
    """Registers what providers have promised, and whether they are where the routes say."""
    promise = "When a provider's promise to retain no data lapses, as the routes state it."
    registry.gauge(
        "legato_provider_promise_until_timestamp_seconds",
        promise,
        lambda: {
            name: lapses_at_s(route.until)
            for name, route in model_states.routes.providers.items()
            if route.until is not None
        },
        "gen_ai_provider_name",
    )
    region = "Whether the certificate of a provider's server names another region than the routes."
    registry.gauge(
        "legato_provider_other_region",
        region,
        lambda: {
            name: name in model_states.other_regions
            for name, route in model_states.routes.providers.items()
            if route.region
        },
        "gen_ai_provider_name",
    )


def show_shares(model_states: ModelStates, registry: Registry) -> None:
    share = "Chats that this router may run at present, of a model's concurrency limit, which is one for all routers."
    registry.gauge("legato_upstream_share", share, lambda: _shares(model_states), *MODEL_LABELS)


def show_route_file(route_watch: RouteWatch, registry: Registry) -> None:
    version = "1 for the version of the routes file, which may not be in use yet; an empty one has mistakes."
    registry.gauge("legato_routes_file_info", version, lambda: {route_watch.file_version: 1}, "version")


def show_keys(model_states: ModelStates, key_watch: KeyWatch, registry: Registry) -> None:
    usable = (
        "Whether a provider's key file has a key, or its credentials were renewed. If not, the last ones stay in use."
    )
    registry.gauge(
        "legato_provider_key_usable",
        usable,
        lambda: {
            name: name not in key_watch.unusable and not model_states.credentials_failure(name)
            for name, route in model_states.routes.providers.items()
            if route.api_key_file is not None or route.credentials is not None
        },
        "gen_ai_provider_name",
    )


def show_chats(completions: Completions, registry: Registry) -> None:
    meaning = "Duration of each step of a chat."
    registry.histogram(
        "legato_step_duration_seconds", meaning, lambda: {"prepare": completions.prepare_times_s}, "step"
    )
    continuation = "Answers that were cut where a model of their class can continue them, by outcome."
    registry.counter("legato_continuations", continuation, lambda: completions.continuations, "outcome")


def _calls(outcomes: OutcomesByClass) -> dict[tuple[str, ...], int]:
    return {
        (class_id, model.role, model.provider, model.model_name, outcome): count
        for class_id, compared in outcomes.by_class.items()
        for model in compared.models
        for outcome, count in {"answered": model.answers, **model.errors}.items()
    }


def _class_tokens(outcomes: OutcomesByClass) -> dict[tuple[str, ...], int]:
    return {
        (class_id, model.role, model.provider, model.model_name, kind): count
        for class_id, compared in outcomes.by_class.items()
        for model in compared.models
        for kind, count in (("input", model.prompt_tokens), ("output", model.completion_tokens))
    }


def _shares(model_states: ModelStates) -> dict[tuple[str, ...], int]:
    shares = _read(model_states, {(): lambda model: model.saturation.share})
    return {labels: share.places for labels, share in shares.items() if share is not None}


def _violations(violation: Violation, model: ModelState) -> int:
    return model.breaker.violations[violation]


def _tokens(kind: str, model: ModelState) -> int:
    return model.spending.tokens[kind]


def _cost_nanos(kind: str, model: ModelState) -> float:
    return model.spending.cost_nanos(kind)


def _read(model_states: ModelStates, readings: _Readings) -> dict[tuple[str, ...], Any]:
    """Returns the values of each model; if the routes have it with different limits, the first one counts."""
    found: dict[tuple[str, str], ModelState] = {}
    for model in (model for models in model_states.by_class.values() for model in models.of_route):
        found.setdefault((model.target.provider, model.target.model_name), model)
    return {(*labels, *more): read(model) for labels, model in found.items() for more, read in readings.items()}
