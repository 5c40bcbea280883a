"""One chat's search for a model: fits the request to each candidate, has it called, and keeps why it refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import LegatoError, forget_origin
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log
from services.router.answers.gathering import Gathering
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import canonical_reason
from services.router.answers.tool_call_check import ToolCallCheck
from services.router.answers.usage_check import longest_output_tokens
from services.router.calls.attempts import Attempts
from services.router.calls.refusals import Refusals, against_policy, dropped_after, too_long_for
from services.router.calls.upstream import OpenCall, Upstream, figures_of, open_call
from services.router.models.call_result import BASELINE, CallPlan, FailedCall
from services.router.models.circuit_breaker import Attempt, BreakerState
from services.router.models.states import ClassModels, ModelState
from services.router.prompts.answer_prefix import add_prefix
from services.router.prompts.calibration import CountedPrompt
from services.router.prompts.fitting import fit_max_tokens, refit_max_tokens
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
from services.router.reasoning.restoring import restore
from services.router.routes.target import Target

# The field by which models refuse to stream: some do, to organizations that OpenAI has not verified.
STREAM_FIELD: Final = "stream"
# A longer `retry-after` is the client's to wait for.
LONGEST_RETRY_WAIT_S: Final = 5.0
# Statuses below are of a request, or of our account, that stays as it is.
_SERVER_FAILED: Final = 500


class _Candidate(NamedTuple):
    """A model, and the request that it may take."""

    model_state: ModelState
    max_tokens: int
    # Parameters that the model has refused.
    ignored: Sequence[str] = ()
    # The model refused a longer answer.
    is_refit: bool = False
    # Unless the model refuses to stream.
    streams: bool = True
    # The model has refused another request of the same chat.
    is_repeated: bool = False


class _Retry(NamedTuple):
    candidate: _Candidate
    after_s: float


@dataclass(slots=True, repr=False)
class ModelSearch:
    """One chat's search for a model."""

    class_id: str
    chat: ChatOpen
    # As the model is sent it that is asked now.
    prompt: Prompt
    allowance: TokenAllowance
    attempts: Attempts
    sink: PieceSink | None
    # All candidate models.
    models: ClassModels
    log: Log
    sends_traces: bool
    # Memory for whole answers.
    gather_budget: BufferBudget
    most_attempts: int
    # Those that were called, or cannot do what is asked.
    tried: list[ModelState] = field(default_factory=list)
    given_prompt: Prompt = field(init=False)
    key_id: str = field(init=False)
    counted: CountedPrompt = field(init=False)
    # Models to try last: others have a larger context window.
    postponed: list[_Candidate] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    # The calls that failed before an answer.
    failed: list[FailedCall] = field(default_factory=list)
    # What the model that has just refused may take instead.
    again: _Candidate | None = None
    # The last call, if it failed in a way that may be over soon, and when it may be repeated.
    retry: _Retry | None = None
    # An answer of nothing, in whose place another model is asked.
    empty: Upstream | None = None

    def __post_init__(self) -> None:
        self.given_prompt = self.prompt
        self.key_id = self.chat.key_id or self.chat.account_id
        self.counted = CountedPrompt(self.prompt.tokens, bool(self.prompt.tools.json), self.chat.account_id)

    async def fit(self, model_state: ModelState) -> _Candidate | None:
        """Returns the request that a model may take; None if another may do better."""
        if self.given_prompt.messages.thoughts:
            await self._turn_to(model_state)
        target, chat = model_state.target, self.chat
        if self.models.route.refuse_cut_prompts and model_state.cut_prompts.cuts(self.prompt.tokens):
            self.refusals.add_no_room(too_long_for(model_state.cut_prompts.read_tokens))
            return None
        asked_tokens = chat.max_tokens if chat.HasField("max_tokens") else None
        ratios = model_state.calibration.ratios(self.counted)
        try:
            fit = fit_max_tokens(
                asked_tokens, self.prompt.tokens, target.context_tokens, target.max_output_tokens, ratios
            )
        except LegatoError as error:
            # The next model may have a larger window.
            self.refusals.add_no_room(error)
            forget_origin(error)
            return None
        candidate = _Candidate(model_state, fit.max_tokens)
        if fit.is_doubtful and self._has_larger_window_elsewhere(target):
            self.postponed.append(candidate)
            return None
        return candidate

    async def _turn_to(self, model_state: ModelState) -> None:
        """Puts into the prompt what this model thought in earlier turns, and nothing that another thought."""
        given = self.given_prompt
        taken = model_state.provider.takes_back(model_state.target.model_name)
        messages, thought_tokens = await restore(given.messages, taken)
        self.prompt = replace(given, messages=messages, tokens=given.tokens + thought_tokens)
        self.counted = self.counted._replace(tokens=self.prompt.tokens)

    async def ask(self, candidate: _Candidate, *, may_postpone: bool = False) -> Upstream | None:
        """Has a model called, and again without the parameters or with a lower max_tokens if it refused these; returns
        None if another may do better."""
        if self.given_prompt.messages.thoughts:
            await self._turn_to(candidate.model_state)
        if candidate.is_repeated:
            self.attempts.repeat()
        upstream = await self._call(candidate)
        again, self.again = self.again, None
        if again is None:
            return upstream
        if may_postpone and again.is_refit and self._has_larger_window_elsewhere(candidate.model_state.target):
            self.postponed.append(again)
            return None
        return await self.ask(again, may_postpone=may_postpone)

    def _has_larger_window_elsewhere(self, target: Target) -> bool:
        return any(model_state.target.context_tokens > target.context_tokens for model_state in self.models.all)

    async def _call(self, candidate: _Candidate) -> Upstream | None:
        model_state, prompt = candidate.model_state, self.prompt
        await self.allowance.cover_prompt(prompt.tokens)
        plan = self._plan(candidate)
        try:
            model_use = await model_state.saturation.admit(self.key_id)
        except LegatoError as error:
            self.refusals.add_saturated(error)
            forget_origin(error)
            return None
        call = open_call(plan, model_state, model_use, self.attempts.count + 1)
        self.attempts.call(plan.target, call.attempt.began_s)
        self._log_event("model.called", plan.target)
        failpoints.hit("router.asked")
        self.tried.append(model_state)
        # How long a model that refuses to stream takes cannot be predicted.
        may_leave = len(self.models.all) > 1 and candidate.streams
        patience_s = self._patience_s(model_state, call.attempt) if may_leave else None
        gathering = None
        if not self.chat.stream:
            gathering = Gathering(self.allowance, self.gather_budget, plan.max_tokens, plan.longest_tokens)
        request = self._request(candidate, call, gathering or self.sink, patience_s)
        check = ToolCallCheck(prompt.tools) if self.models.judges_tool_calls and prompt.tools.json else None
        try:
            upstream = await call.begin(request, gathering, check)
        except ProviderError as error:
            self.again = self._after(error, candidate, plan)
            self.retry = _retry_of(error, candidate, was_left=patience_s is not None)
            call.fail(error, is_repeated=self.again is not None)
            self._add_failure(error, call)
            forget_origin(error)
            return None
        # What was cut at its very end goes on with nothing.
        first = upstream.first
        is_empty = first.has_no_content and _is_stop(first.finish_reason) and not prompt.answer_prefix
        if is_empty and self.empty is None and self.has_another():
            self.empty = upstream
            return None
        return upstream

    def _plan(self, candidate: _Candidate) -> CallPlan:
        model_state = candidate.model_state
        max_tokens = self.allowance.fit(candidate.max_tokens)
        whole_s = self._whole_answer_s(model_state, max_tokens) if candidate.streams else None
        streams = candidate.streams and whole_s is None
        is_limit_told = self._tells_limit(model_state, max_tokens, streams=streams)
        # The model's own count ends the answer if the model knows the limit, else ours does.
        answer_ratio = model_state.calibration.answer_ratio
        longest_tokens = longest_output_tokens(max_tokens, answer_ratio) if is_limit_told else max_tokens
        return CallPlan(
            self.class_id,
            model_state.target,
            self.models.roles.get(model_state, BASELINE),
            self.counted,
            max_tokens,
            longest_tokens,
            is_limit_told,
            whole_s,
            tuple(self.failed),
        )

    def _request(
        self, candidate: _Candidate, call: OpenCall, sink: PieceSink | None, patience_s: float | None
    ) -> ProviderCall:
        chat, prompt, plan, target = self.chat, self.prompt, call.plan, call.plan.target
        tools, messages, parameters = prompt.tools, prompt.messages, prompt.parameters
        if candidate.ignored:
            parameters = parameters.without(candidate.ignored)
        if prompt.answer_prefix and target.continues is not None:
            messages, parameters = add_prefix(messages, parameters, prompt.answer_prefix, target.continues)
        if prompt.offered_tools is not None and target.has_tools and not tools.json:
            tools = prompt.offered_tools
        ignored, on_sent = list(candidate.ignored), None
        if chat.tells_acceptance or (chat.stream and prompt.parameters.json):
            on_sent = partial(self.allowance.report_sent, ignored, accepted=chat.tells_acceptance)
        is_whole = plan.whole_s is not None
        return ProviderCall(
            model_name=target.model_name,
            messages=messages,
            tools=tools,
            parameters=parameters,
            max_tokens=plan.max_tokens,
            abilities=target.abilities,
            stream=candidate.streams and not is_whole,
            cache_identity=prompt.cache_key or prompt.conversation,
            is_limit_told=plan.is_limit_told,
            patience_s=patience_s or target.timeouts.first_byte_s if is_whole else patience_s,
            traceparent=call.span.traceparent if call.span is not None and self.sends_traces else "",
            is_traced=call.span is not None,
            keeps_thoughts=chat.shows_reasoning,
            has_unusual_names=chat.has_unusual_names,
            on_sent=on_sent,
            sink=sink,
            ignored=ignored,
        )

    def _tells_limit(self, model_state: ModelState, max_tokens: int, *, streams: bool) -> bool:
        """Returns whether the model is sent an output limit: if the client, the window or the credit sets one, or the
        answer cannot be cut on its way. Vendors reserve what is sent, and count it against their limits."""
        is_limited = self.chat.HasField("max_tokens") or max_tokens < model_state.target.max_output_tokens
        return is_limited or not streams or model_state.provider.needs_max_tokens

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

    def _after(self, error: ProviderError, candidate: _Candidate, plan: CallPlan) -> _Candidate | None:
        """Returns what the model may take instead of a call that it refused."""
        if candidate.streams and error.param == STREAM_FIELD:
            return candidate._replace(streams=False, is_repeated=True)
        dropped = [] if candidate.ignored else dropped_after(error, self.prompt.parameters)
        if dropped:
            return candidate._replace(ignored=dropped, is_repeated=True)
        return _refit(error, candidate, plan)

    def _add_failure(self, error: ProviderError, call: OpenCall) -> None:
        """Keeps what a call without an answer means for the chat."""
        target = call.plan.target
        if self.again is not None and not self.again.is_refit:
            self._log_failure(error, target)
            return
        if isinstance(error, CannotDo):
            # No request was sent.
            self.attempts.take_back()
            self.refusals.add_failure(error, target, self.prompt.parameters)
            return
        if self.again is None:
            self.failed.append(FailedCall(call.plan.role, error.failure))
        self.attempts.fail(error.http_status)
        self._log_failure(error, target)
        if error.failure is Failure.POLICY:
            raise against_policy() from None
        self.refusals.add_failure(error, target, self.prompt.parameters)
        if error.failure is Failure.BUSY:
            account_id = self.chat.account_id or self.key_id
            saturation = call.model_state.saturation
            self.refusals.add_saturated(saturation.turned_away(error.retry_after_s, call.model_use, account_id))

    def to_raise(self) -> LegatoError:
        """Returns the error for the client after all models were tried."""
        if self.prompt.offered_tools is not None and self.refusals.refused is not None:
            # The tools may be the cause, and those are ours: the chat can be served without them.
            return self.refusals.refused
        return self.refusals.to_raise()

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


def _refit(error: ProviderError, candidate: _Candidate, plan: CallPlan) -> _Candidate | None:
    """Returns a request with a lower max_tokens that may fit, once, if the model refused for length."""
    figures = figures_of(plan, error)
    if figures is None or candidate.is_refit:
        return None
    fitting_tokens = refit_max_tokens(plan.max_tokens, plan.target.context_tokens, figures)
    return (
        None
        if fitting_tokens is None
        else candidate._replace(max_tokens=fitting_tokens, is_refit=True, is_repeated=True)
    )


def _retry_of(error: ProviderError, candidate: _Candidate, *, was_left: bool) -> _Retry | None:
    """Returns the call again if its failure may be over soon. A model that timed out would take as long once more,
    unless it was left for another before its time was over; one that names no time to wait is full."""
    if error.failure is Failure.BUSY:
        wait_s = error.retry_after_s
        return None if wait_s is None or wait_s > LONGEST_RETRY_WAIT_S else _Retry(candidate, wait_s)
    has_timed_out = isinstance(error, ProviderTimedOut) and not was_left
    is_permanent = error.http_status is not None and error.http_status < _SERVER_FAILED
    if error.failure is not Failure.PROVIDER or has_timed_out or is_permanent:
        return None
    return _Retry(candidate, 0.0)
