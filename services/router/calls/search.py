"""One chat's search for a model: fits the request to each model, calls it, and notes why it refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from legato_protos.router.v1.router_pb2 import ChatOpen
from legato_protos.type.v1.model_call_pb2 import ModelCall
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log
from services.router.answers.gathering import Gathering
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import canonical_reason
from services.router.answers.tool_call_check import ToolCallCheck
from services.router.answers.usage_check import longest_output_tokens
from services.router.calls.refusals import Refusals, against_policy, dropped_after, not_accepted, too_long_for
from services.router.calls.upstream import Upstream, begin, begin_span, end_span
from services.router.models.circuit_breaker import Attempt, BreakerState
from services.router.models.saturation import ModelUse
from services.router.models.states import ClassModels, ModelState
from services.router.prompts.answer_prefix import add_prefix
from services.router.prompts.calibration import CountedPrompt
from services.router.prompts.fitting import fit_max_tokens, model_prompt_tokens, refit_max_tokens
from services.router.prompts.prompt import Prompt
from services.router.providers.base import (
    CannotDo,
    Failure,
    PieceSink,
    ProviderCall,
    ProviderError,
    ProviderTimedOut,
)
from services.router.providers.http.answer_buffer import BufferBudget
from services.router.routes.target import Target
from services.router.schema.parameters import Parameters
from services.router.trials.outcomes import CallOutcome, CallRole

# The field by which models refuse to stream: some do, to organizations that OpenAI has not verified.
STREAM_FIELD: Final = "stream"
# A longer `retry-after` is the client's to wait for.
LONGEST_RETRY_WAIT_S: Final = 5.0
# Statuses below are of a request, or of our account, that stays as it is.
_SERVER_FAILED: Final = 500


@dataclass(slots=True)
class Attempts:
    """The models that one chat tried, for the log."""

    count: int = 0
    target: Target | None = None
    http_status: int | None = None
    # Those of them that do not count, such as one that repeated a model with a lower max_tokens.
    refits: int = 0
    first_asked_at_s: float | None = None
    # Of the routes that list these models.
    routes_version: str = ""
    # What was called and did not answer, and yet costs.
    other_calls: list[ModelCall] = field(default_factory=list)


class _PlannedCall(NamedTuple):
    model_state: ModelState
    max_tokens: int
    # Parameters that the model has refused.
    ignored: Sequence[str] = ()
    # The model refused a longer answer.
    is_refit: bool = False
    # Unless the model refuses to stream.
    streams: bool = True


class _Retry(NamedTuple):
    planned: _PlannedCall
    after_s: float


@dataclass(slots=True, repr=False)
class ModelSearch:
    """One chat's search for a model."""

    chat: ChatOpen
    prompt: Prompt
    allowance: TokenAllowance
    attempts: Attempts
    sink: PieceSink | None
    # All candidate models.
    models: ClassModels
    log: Log
    tells_traces: bool
    # Memory for whole answers.
    gather_budget: BufferBudget
    most_attempts: int
    key_id: str = field(init=False)
    counted: CountedPrompt = field(init=False)
    # Models to try last: others have a larger context window.
    postponed: list[_PlannedCall] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    # The model of the canary failed before it began to answer.
    has_canary_failed: bool = False
    # What the model that has just refused may take instead.
    again: _PlannedCall | None = None
    tried: list[ModelState] = field(default_factory=list)
    # The last call, if it failed in a way that may be over soon, and when it may be repeated.
    retry: _Retry | None = None
    # An answer of nothing, in whose place another model is asked.
    empty: Upstream | None = None

    def __post_init__(self) -> None:
        self.key_id = self.chat.key_id or self.chat.account_id
        self.counted = CountedPrompt(self.prompt.tokens, bool(self.prompt.tools.json), self.chat.account_id)

    async def try_model(self, model_state: ModelState) -> Upstream | None:
        """Tries one model; returns None if another may do better."""
        target, chat = model_state.target, self.chat
        if self.models.route.refuse_cut_prompts and model_state.cut_prompts.cuts(self.prompt.tokens):
            self.refusals.no_room = too_long_for(model_state.cut_prompts.read_tokens)
            return None
        asked_tokens = chat.max_tokens if chat.HasField("max_tokens") else None
        ratios = model_state.calibration.ratios(self.counted)
        try:
            fit = fit_max_tokens(
                asked_tokens, self.prompt.tokens, target.context_tokens, target.max_output_tokens, ratios
            )
        except LegatoError as error:
            # The next model may have a larger window.
            self.refusals.no_room = error
            forget_origin(error)
            return None
        planned = _PlannedCall(model_state, fit.max_tokens)
        if fit.is_doubtful and self._has_larger_window_elsewhere(target):
            self.postponed.append(planned)
            return None
        return await self.make(planned, may_postpone=True)

    async def make(self, planned: _PlannedCall, *, may_postpone: bool = False) -> Upstream | None:
        """Makes a call, and again without the parameters or with a lower max_tokens if the model refused these."""
        self.attempts.refits += planned.is_refit or bool(planned.ignored) or not planned.streams
        upstream = await self._call(planned)
        again, self.again = self.again, None
        if again is None:
            return upstream
        if may_postpone and again.is_refit and self._has_larger_window_elsewhere(planned.model_state.target):
            self.postponed.append(again)
            return None
        return await self.make(again, may_postpone=may_postpone)

    def _has_larger_window_elsewhere(self, target: Target) -> bool:
        return any(model_state.target.context_tokens > target.context_tokens for model_state in self.models.all)

    async def _call(self, planned: _PlannedCall) -> Upstream | None:
        model_state, ignored, chat, prompt = planned.model_state, planned.ignored, self.chat, self.prompt
        target = model_state.target
        parameters = prompt.parameters.without(ignored) if ignored else prompt.parameters
        await self.allowance.cover_prompt(prompt.tokens)
        max_tokens = self.allowance.fit(planned.max_tokens)
        whole_s = self._whole_answer_s(model_state, max_tokens) if planned.streams else None
        streams = planned.streams and whole_s is None
        try:
            model_use = await model_state.saturation.admit(self.key_id)
        except LegatoError as error:
            self.refusals.add_saturated(error)
            forget_origin(error)
            return None
        self.attempts.target = target
        self.attempts.count += 1
        self._log_event("model.called", target)
        failpoints.hit("router.asked")
        attempt = model_state.breaker.start_attempt(whole_s or 0.0)
        if self.attempts.first_asked_at_s is None:
            self.attempts.first_asked_at_s = attempt.began_s
        span = begin_span(target, self.attempts.count, max_tokens, model_state.provider.telemetry_name)
        call = _make_call(prompt, parameters, target, max_tokens, streams=streams)
        call.ignored += ignored
        call.is_limit_told = self._tells_limit(model_state, call)
        # The model's own count ends the answer if the model knows the limit, else ours does.
        answer_ratio = model_state.calibration.answer_ratio
        longest_tokens = longest_output_tokens(max_tokens, answer_ratio) if call.is_limit_told else max_tokens
        gathers = not chat.stream
        gathering = Gathering(self.allowance, self.gather_budget, max_tokens, longest_tokens) if gathers else None
        call.sink = gathering or self.sink
        call.is_traced = span is not None
        if span is not None and self.tells_traces:
            call.traceparent = span.traceparent
        if chat.tells_acceptance or (chat.stream and prompt.parameters.json):
            call.on_sent = partial(self.allowance.tell_sent, call.ignored, accepted=chat.tells_acceptance)
        self.tried.append(model_state)
        # How long a model that refuses to stream takes cannot be predicted.
        patience_s = self._patience_s(model_state, attempt) if len(self.models.all) > 1 and planned.streams else None
        call.patience_s = patience_s if whole_s is None else patience_s or target.timeouts.first_byte_s
        try:
            first, pieces = await begin(model_state, call, model_use, attempt, gathering)
        except BaseException as error:
            end_span(span, error)
            if not isinstance(error, ProviderError):
                raise
            self.again = self._after(error, planned, call)
            self.retry = _retry_of(error, planned, was_left=patience_s is not None)
            if whole_s is not None and isinstance(error, ProviderTimedOut):
                model_state.pace.forget()
            if self.again is None or self.again.is_refit:
                self._note(error, model_state, model_use)
            else:
                self._log_failure(error, target)
            forget_origin(error)
            return None
        upstream = Upstream(
            model_state,
            model_use,
            attempt,
            first,
            pieces,
            self.counted,
            max_tokens,
            longest_tokens,
            is_whole=gathering is not None and not gathering.is_cut,
            is_limit_told=call.is_limit_told,
            ignored=call.ignored,
            span=span,
        )
        self._count_begun(upstream)
        # What was cut at its very end goes on with nothing.
        is_empty = first.says_nothing and _is_stop(first.finish_reason) and not prompt.answer_prefix
        if is_empty and self.empty is None and self.has_another():
            self.empty = upstream
            return None
        return upstream

    def _tells_limit(self, model_state: ModelState, call: ProviderCall) -> bool:
        """Returns whether the model is sent an output limit: if the client, the window or the credit sets one, or the
        answer cannot be cut on its way. Vendors reserve what is sent, and count it against their limits."""
        is_limited = self.chat.HasField("max_tokens") or call.max_tokens < model_state.target.max_output_tokens
        return is_limited or not call.stream or model_state.provider.needs_max_tokens

    def _whole_answer_s(self, model_state: ModelState, max_tokens: int) -> float | None:
        """Returns how long the answer takes at most if it is short enough to be asked for whole, else None."""
        route = self.models.route
        if self.chat.stream or route.first_token_s is not None or not self.allowance.covers(max_tokens):
            return None
        return model_state.pace.whole_answer_s(max_tokens)

    def _patience_s(self, model_state: ModelState, attempt: Attempt) -> float | None:
        """Returns how long the model may be silent; None if nothing is gained by leaving it."""
        breaker = model_state.breaker
        if attempt.is_trial:
            return breaker.trial_timeout_s
        if not self.has_another():
            return None
        route = self.models.route
        return breaker.first_token_timeout_s if route.first_token_s is None else route.first_token_s

    def has_another(self) -> bool:
        """Returns whether another healthy model is untried."""
        return self.has_attempts and any(
            model_state not in self.tried and self._is_ready(model_state) for model_state in self.models.all
        )

    def _is_ready(self, model_state: ModelState) -> bool:
        saturation, is_closed = model_state.saturation, model_state.breaker.state is BreakerState.CLOSED
        has_room = saturation.has_room_for(self.key_id) and not saturation.backoff.left_s(self.key_id)
        return is_closed and has_room and self.prompt.tokens < model_state.target.context_tokens

    @property
    def has_attempts(self) -> bool:
        """Returns whether the chat may be sent to another model."""
        return self.attempts.count - self.attempts.refits < self.most_attempts

    def _after(self, error: ProviderError, planned: _PlannedCall, call: ProviderCall) -> _PlannedCall | None:
        """Returns what the model may take instead of a call that it refused."""
        if planned.streams and error.param == STREAM_FIELD:
            return planned._replace(streams=False)
        dropped = [] if planned.ignored else dropped_after(error, self.prompt.parameters)
        return planned._replace(ignored=dropped) if dropped else self._refit(error, planned, call)

    def _count_begun(self, upstream: Upstream) -> None:
        """Has the outcome of a call counted when it ends. A canary that failed before is judged now: another model
        answers the chat."""
        outcomes = self.models.outcomes
        if outcomes is None:
            return
        role = self._role_of(upstream.model_state)
        upstream.note_outcome = partial(outcomes.note, role, upstream.model_state.target)
        if self.models.route.canary is not None and self.prompt.tools.json:
            upstream.call_check = ToolCallCheck(self.prompt.tools)
        if self.has_canary_failed and role is CallRole.BASELINE and outcomes.canary is not None:
            outcomes.canary.note(is_canary=True, failed=True)

    def _count_failed(self, error: ProviderError, model_state: ModelState) -> None:
        """Counts a call without an answer, unless it is repeated in another way."""
        outcomes, role, outcome = self.models.outcomes, self._role_of(model_state), CallOutcome(error.failure.value)
        if outcomes is None or self.again is not None:
            return
        outcomes.note(role, model_state.target, outcome, is_judged=role is CallRole.BASELINE)
        self.has_canary_failed |= role is CallRole.CANARY and outcome.is_failure

    def _role_of(self, model_state: ModelState) -> CallRole:
        return CallRole.CANARY if self.models.canary_model is model_state else CallRole.BASELINE

    def _note(self, error: ProviderError, model_state: ModelState, model_use: ModelUse) -> None:
        target = model_state.target
        if isinstance(error, CannotDo):
            # No request was sent.
            self.attempts.count -= 1
            self.refusals.cannot = LegatoError(Reason.REQUEST_INVALID, error.what, param=error.param)
            return
        self._count_failed(error, model_state)
        self.attempts.http_status = error.http_status
        self._log_failure(error, target)
        if error.failure is Failure.POLICY:
            raise against_policy() from None
        if error.failure is Failure.REFUSED:
            self.refusals.refused = not_accepted(error, self.prompt.parameters)
        if error.failure is Failure.PROVIDER:
            self.refusals.is_for_now = True
        if error.failure is Failure.CONTEXT:
            self.refusals.no_room = too_long_for(target.context_tokens)
        if error.failure is Failure.BUSY:
            account_id = self.chat.account_id or self.key_id
            refusal = model_state.saturation.turned_away(error.retry_after_s, model_use, account_id)
            self.refusals.add_saturated(refusal)

    def to_raise(self) -> LegatoError:
        """Returns the error for the client after all models were tried."""
        if self.prompt.offered_tools is not None and self.refusals.refused is not None:
            # The tools may be the cause, and those are ours: the chat can be served without them.
            return self.refusals.refused
        return self.refusals.to_raise()

    def _refit(self, error: ProviderError, planned: _PlannedCall, call: ProviderCall) -> _PlannedCall | None:
        """Returns a call with a lower max_tokens that may fit, once, if the model refused for length."""
        figures = error.figures
        if figures is None:
            return None
        if not call.is_limit_told:
            # The total is of the prompt and a limit that is the server's own.
            figures = replace(figures, total_tokens=None)
        model_state, model_tokens = planned.model_state, model_prompt_tokens(call.max_tokens, figures)
        if model_tokens is not None:
            model_state.calibration.note(self.counted, model_tokens)
        fitting_tokens = refit_max_tokens(call.max_tokens, model_state.target.context_tokens, figures)
        if fitting_tokens is None or planned.is_refit:
            return None
        return planned._replace(max_tokens=fitting_tokens, is_refit=True)

    def _log_failure(self, error: ProviderError, target: Target) -> None:
        self._log_event("model.failed", target, reason=error.failure.value, http_status=error.http_status)

    def _log_event(self, event: str, target: Target, **fields: str | int | None) -> None:
        if not self.log.is_debug:
            return
        self.log.debug(
            event,
            request_id=self.chat.request_id,
            provider=target.provider,
            model_name=target.model_name,
            attempt=self.attempts.count,
            **fields,
        )


def _is_stop(finish_reason: str | None) -> bool:
    return canonical_reason(finish_reason, has_calls=False) == "stop"


def _retry_of(error: ProviderError, planned: _PlannedCall, *, was_left: bool) -> _Retry | None:
    """Returns the call again if its failure may be over soon. A model that timed out would take as long once more,
    unless it was left for another before its time was over; one that names no time to wait is full."""
    if error.failure is Failure.BUSY:
        wait_s = error.retry_after_s
        return None if wait_s is None or wait_s > LONGEST_RETRY_WAIT_S else _Retry(planned, wait_s)
    has_timed_out = isinstance(error, ProviderTimedOut) and not was_left
    is_permanent = error.http_status is not None and error.http_status < _SERVER_FAILED
    if error.failure is not Failure.PROVIDER or has_timed_out or is_permanent:
        return None
    return _Retry(planned, 0.0)


def _make_call(
    prompt: Prompt, parameters: Parameters, target: Target, max_tokens: int, *, streams: bool
) -> ProviderCall:
    tools, messages = prompt.tools, prompt.messages
    if prompt.answer_prefix and target.continues is not None:
        messages, parameters = add_prefix(messages, parameters, prompt.answer_prefix, target.continues)
    if prompt.offered_tools is not None and target.has_tools and not tools.json:
        tools = prompt.offered_tools
    return ProviderCall(
        model_name=target.model_name,
        messages=messages,
        tools=tools,
        parameters=parameters,
        max_tokens=max_tokens,
        abilities=target.abilities,
        cache_identity=prompt.cache_key or prompt.conversation,
        stream=streams,
    )
