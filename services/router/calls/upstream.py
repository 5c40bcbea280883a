"""One call to a model, from the request until its answer has been read, with its span in the trace of the chat."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER, Finished
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.telemetry.tracing import Span, current_span
from services.chassis.timing.deadlines import TimeLimit
from services.router.answers.gathering import GatheredAnswer, Gathering
from services.router.answers.relay import FAILURE_REASONS
from services.router.answers.tool_call_check import ToolCallCheck
from services.router.answers.usage_check import UsageCheck, Violation
from services.router.models.circuit_breaker import Attempt
from services.router.models.saturation import ModelUse
from services.router.models.spending import describe_call
from services.router.models.states import ModelState
from services.router.prompts.calibration import CountedPrompt
from services.router.providers.base import (
    CannotDo,
    Failure,
    Piece,
    ProviderCall,
    ProviderError,
    ProviderTimedOut,
    ProviderUsage,
    ServerRefused,
)
from services.router.routes.target import Target
from services.router.trials.outcomes import CUT, EMPTY, CallOutcome, NoteOutcome

OPERATION: Final = "chat"


@dataclass(slots=True)
class Upstream:
    """A model that has begun to answer; a context manager around reading the rest."""

    model_state: ModelState
    model_use: ModelUse
    attempt: Attempt
    first: Piece
    rest: AsyncGenerator[Piece, None] | GatheredAnswer
    prompt: CountedPrompt
    max_tokens: int
    # By our count, of an answer that respects `max_tokens`.
    longest_tokens: int
    # All of the answer is here and covered.
    is_whole: bool
    # The model was sent the limit.
    is_limit_told: bool = True
    # Parameters that the model was called without.
    ignored: Sequence[str] = ()
    span: Span | None = None
    # How the answer finished, once known, and what the provider reported of it.
    finished: Finished | None = None
    told_usage: ProviderUsage | None = None
    # Set if the answer was cut because it exceeded `max_tokens`.
    went_beyond_limit: bool = False
    # Is told how the call ended, in a class whose outcomes are counted.
    note_outcome: NoteOutcome | None = None
    # Where tool calls are counted, too.
    call_check: ToolCallCheck | None = None
    # Our own count of the answer, if it can be compared with the model's.
    comparable_tokens: int | None = None

    @property
    def usage_check(self) -> UsageCheck:
        """Returns the check for the usage that the model reports."""
        target, attempt = self.model_state.target, self.attempt
        return UsageCheck(
            target.context_tokens,
            self.max_tokens,
            self.prompt.tokens,
            attempt.age_s,
            attempt.violated,
            is_limit_told=self.is_limit_told,
        )

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, ProviderError):
            self.attempt.failed()
        if self.finished is not None:
            usage, calibration = self.finished.usage, self.model_state.calibration
            told = self.told_usage
            if told is not None and told.prompt_tokens:
                is_cut = self.model_state.cut_prompts.note(self.prompt, told, calibration)
                if is_cut:
                    self.attempt.violated(Violation.PROMPT_CUT)
            if self.finished.usage_source == USAGE_SOURCE_PROVIDER and self.comparable_tokens is not None:
                calibration.note_answer(self.prompt.account_id, self.comparable_tokens, usage.completion_tokens)
            self.attempt.finished(usage.prompt_tokens, usage.completion_tokens)
            if self.span is not None:
                self.attempt.note_trace(self.span.trace_id)
            if self.is_whole:
                self._note_pace(usage.completion_tokens)
            self.model_state.spending.add(usage, told)
        if self.went_beyond_limit and self.is_limit_told:
            self.attempt.violated(Violation.MAX_TOKENS)
        end_span(self.span, error, self.finished, self.told_usage)
        if self.note_outcome is not None and (self.finished is not None or isinstance(error, ProviderError)):
            self.note_outcome(self._outcome(error))
        self.model_use.release()

    def _note_pace(self, tokens: int) -> None:
        pace, attempt = self.model_state.pace, self.attempt
        if attempt.first_token_s is None:
            pace.note_whole(attempt.age_s())
        else:
            pace.note_streamed(attempt.first_token_s, attempt.age_s(), tokens)

    def describe_empty(self) -> ModelCall:
        """Describes the call if its answer was nothing."""
        said = self.first.usage
        told = None if said is None else self.usage_check.believed(said, 0)
        return describe_call(self.model_state.target, Usage(prompt_tokens=self.prompt.tokens), told, said)

    async def discard(self, *, is_empty: bool = False) -> None:
        """Ends an answer in whose place another model's is passed on."""
        await self.rest.aclose()
        if self.note_outcome is not None and is_empty:
            self.note_outcome(CallOutcome(EMPTY, first_token_s=self.attempt.first_token_s))
        end_span(self.span)
        self.model_use.release()

    def _outcome(self, error: BaseException | None) -> CallOutcome:
        outcome = CallOutcome(first_token_s=self.attempt.first_token_s)
        if self.finished is None or isinstance(error, ProviderError):
            outcome.error = CUT
            return outcome
        first, finished = self.first, self.finished
        if first.last and first.says_nothing:
            outcome.error = EMPTY
        outcome.duration_s, outcome.finish_reason = self.attempt.age_s(), finished.finish_reason
        outcome.prompt_tokens, outcome.completion_tokens = (
            finished.usage.prompt_tokens,
            finished.usage.completion_tokens,
        )
        if self.call_check is not None:
            is_cut = finished.finish_reason == "length"
            outcome.tool_calls, outcome.valid_tool_calls = self.call_check.count(is_cut=is_cut)
        return outcome


async def begin(
    model_state: ModelState, call: ProviderCall, model_use: ModelUse, attempt: Attempt, gathering: Gathering | None
) -> tuple[Piece, AsyncGenerator[Piece, None] | GatheredAnswer]:
    """Returns the first piece and those behind it: as they come, or all if they are to be gathered. On any error the
    permit is released."""
    first: Piece | None = None
    try:
        pieces = model_state.provider.answer(call)
        first = await anext(pieces)
        model_use.begun()
        attempt.begun(is_answer=False)
        if gathering is None:
            if first.says_nothing and first.finish_reason in FAILURE_REASONS:
                await pieces.aclose()
                raise ProviderError("failed before its answer")
            attempt.answered()
            return first, pieces
        if first.last:
            gathered = await gathering.gather(first, pieces)
        else:
            left_s = model_state.target.timeouts.total_s - attempt.age_s()
            with TimeLimit(left_s, ProviderTimedOut()):
                gathered = await gathering.gather(first, pieces)
        attempt.answered()
        first_gathered = gathered.popleft()
        return first_gathered, GatheredAnswer(gathered, pieces) if gathered else pieces
    except BaseException as error:
        model_use.release()
        if not isinstance(error, ProviderError) or isinstance(error, CannotDo):
            attempt.given_up()
            raise
        if isinstance(error, ServerRefused) and model_use.saturation.answering:
            # A server that answers others but refuses a connection is full, not down.
            error.failure = Failure.BUSY
            attempt.given_up()
            raise
        if first is not None and error.failure is not Failure.POLICY:
            # The model had accepted the request.
            error.failure = Failure.PROVIDER
        if error.failure is Failure.PROVIDER:
            attempt.failed()
        else:
            attempt.declined()
        raise


def begin_span(target: Target, attempt: int, max_tokens: int, provider_name: str) -> Span | None:
    """Starts the span of one call; returns None if the chat is not traced. `provider_name` is OpenTelemetry's."""
    chat = current_span()
    if chat is None:
        return None
    span = chat.child(f"{OPERATION} {target.model_name}", is_client=True)
    span.attributes = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": provider_name,
        "gen_ai.request.model": target.model_name,
        "gen_ai.request.max_tokens": max_tokens,
        "legato.attempt": attempt,
        "legato.provider": target.provider,
    }
    return span


def end_span(
    span: Span | None,
    error: BaseException | None = None,
    finished: Finished | None = None,
    told: ProviderUsage | None = None,
) -> None:
    """Ends the span of one call, if it has one; `told` is what the provider reported of its answer."""
    if span is None:
        return
    if isinstance(error, ProviderError):
        # The provider's HTTP status if it sent one.
        span.attributes["error.type"] = str(error.http_status or error.failure.value)
    elif isinstance(error, asyncio.CancelledError):
        span.attributes["error.type"] = "cancelled"
    elif error is not None:
        span.attributes["error.type"] = type(error).__name__
    if finished is not None:
        span.attributes["gen_ai.response.finish_reasons"] = [finished.finish_reason]
        span.attributes["gen_ai.usage.input_tokens"] = finished.usage.prompt_tokens
        span.attributes["gen_ai.usage.output_tokens"] = finished.usage.completion_tokens
    if told is not None:
        if told.model_name:
            span.attributes["gen_ai.response.model"] = told.model_name
        for name, tokens in (
            ("gen_ai.usage.cache_read.input_tokens", told.cached_tokens),
            ("gen_ai.usage.cache_write.input_tokens", told.cache_write_tokens),
            ("gen_ai.usage.reasoning.output_tokens", told.reasoning_tokens),
        ):
            if tokens is not None:
                span.attributes[name] = tokens
    span.end()
