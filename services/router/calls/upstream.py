"""One call to a model, from the request until its answer has been read: the one place where its result is made."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from types import TracebackType

from msgspec import Struct

from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.telemetry.tracing import Span
from services.chassis.timing.deadlines import TimeLimit
from services.router.answers.answer_end import NOT_RELAYED, AnswerEnd
from services.router.answers.gathering import GatheredAnswer, Gathering
from services.router.answers.relay import FAILURE_REASONS
from services.router.answers.tool_call_check import ToolCallCheck
from services.router.answers.usage_check import UsageCheck
from services.router.calls.call_span import begin_span, end_span
from services.router.models.call_result import CallEnd, CallPlan, CallResult
from services.router.models.circuit_breaker import Attempt
from services.router.models.saturation import ModelUse
from services.router.models.spending import describe_call
from services.router.models.states import ModelState
from services.router.prompts.fitting import Figures
from services.router.providers.base import (
    CannotDo,
    Failure,
    Piece,
    ProviderCall,
    ProviderError,
    ProviderTimedOut,
    ServerRefused,
)

# Returns how the answer of a call ended, when nothing more is read of it.
ReadEnd = Callable[[], AnswerEnd]


class OpenCall(Struct, frozen=True, eq=False):
    """A call that was planned and admitted. Its end is reported once, to all who observe the model."""

    plan: CallPlan
    model_state: ModelState
    model_use: ModelUse
    # The circuit breaker's part of the call, which is the first that learns of its result.
    attempt: Attempt
    span: Span | None

    __repr__ = object.__repr__

    async def begin(
        self, request: ProviderCall, gathering: Gathering | None, call_check: ToolCallCheck | None = None
    ) -> "Upstream":
        """Makes the call. After a ProviderError, `fail` has to be called."""
        has_begun, attempt = False, self.attempt
        try:
            pieces = self.model_state.provider.answer(request)
            first = await anext(pieces)
            has_begun = True
            self.model_use.begun()
            attempt.begun(is_answer=False)
            rest: AsyncGenerator[Piece, None] | GatheredAnswer = pieces
            if gathering is None:
                if first.finish_reason in FAILURE_REASONS and first.has_no_content:
                    await pieces.aclose()
                    raise ProviderError("failed before its answer")
            else:
                first, rest = await self._gather(gathering, first, pieces)
        except ProviderError as error:
            self.model_use.release()
            if isinstance(error, ServerRefused) and self.model_use.saturation.answering:
                # A server that answers others but refuses a connection is full, not down.
                error.reclassify(Failure.BUSY)
            elif has_begun and error.failure is not Failure.POLICY and not isinstance(error, CannotDo):
                # The model had accepted the request.
                error.reclassify(Failure.PROVIDER)
            raise
        except BaseException as error:
            self.end(CallEnd.GIVEN_UP, error)
            raise
        attempt.answered()
        if self.plan.failed_before:
            for observer in self.model_state.observers:
                observer.on_fallback(self.plan)
        is_whole = gathering is not None and not gathering.is_cut
        return Upstream(self.plan, self, first, rest, is_whole, request.ignored, call_check)

    async def _gather(
        self, gathering: Gathering, first: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> tuple[Piece, AsyncGenerator[Piece, None] | GatheredAnswer]:
        if first.last:
            gathered = await gathering.gather(first, pieces)
        else:
            left_s = self.plan.target.timeouts.total_s - self.attempt.age_s()
            with TimeLimit(left_s, ProviderTimedOut()):
                gathered = await gathering.gather(first, pieces)
        first_gathered = gathered.popleft()
        return first_gathered, GatheredAnswer(gathered, pieces) if gathered else pieces

    def fail(self, error: ProviderError, *, is_repeated: bool) -> None:
        """Ends a call whose answer has not begun. `is_repeated` if it is made again in another way."""
        is_full = isinstance(error, ServerRefused) and error.failure is Failure.BUSY
        if isinstance(error, CannotDo) or is_full:
            end = CallEnd.GIVEN_UP
        else:
            end = CallEnd.FAILED if error.failure is Failure.PROVIDER else CallEnd.DECLINED
        self.end(end, error, is_repeated=is_repeated)

    def end(
        self,
        end: CallEnd,
        error: BaseException | None,
        answer: AnswerEnd = NOT_RELAYED,
        upstream: "Upstream | None" = None,
        *,
        is_repeated: bool = False,
    ) -> None:
        """Makes the result of the call, which is over, and reports it. `upstream` is set if the answer had begun."""
        failed = error if isinstance(error, ProviderError) and not isinstance(error, CannotDo) else None
        tool_calls = valid_tool_calls = 0
        if upstream is not None and upstream.call_check is not None and answer.finished is not None:
            is_length = answer.finished.finish_reason == "length"
            tool_calls, valid_tool_calls = upstream.call_check.count(is_cut=is_length)
        result = CallResult(
            end,
            self.attempt.age_s(),
            self.attempt.first_token_s,
            answer,
            None if failed is None else failed.failure,
            has_timed_out=upstream is None and isinstance(error, ProviderTimedOut),
            figures=None if failed is None else figures_of(self.plan, failed),
            is_repeated=is_repeated,
            is_whole=upstream is not None and upstream.is_whole,
            is_silent=upstream is not None and upstream.first.last and upstream.first.has_no_content,
            tool_calls=tool_calls,
            valid_tool_calls=valid_tool_calls,
            trace_id="" if self.span is None else self.span.trace_id,
        )
        self.model_use.release()
        end_span(self.span, error, answer)
        self.attempt.on_result(self.plan, result)
        for observer in self.model_state.observers:
            observer.on_result(self.plan, result)


class Upstream(Struct, frozen=True, eq=False):
    """A model that has begun to answer."""

    plan: CallPlan
    call: OpenCall
    first: Piece
    rest: AsyncGenerator[Piece, None] | GatheredAnswer
    # All of the answer is here and covered.
    is_whole: bool
    # Parameters that the model was called without.
    ignored: Sequence[str]
    # Gets the tool calls that are sent, where they are judged.
    call_check: ToolCallCheck | None = None

    __repr__ = object.__repr__

    @property
    def model_state(self) -> ModelState:
        return self.call.model_state

    @property
    def usage_check(self) -> UsageCheck:
        """Returns the check for the usage that the model reports."""
        plan, attempt = self.plan, self.call.attempt
        return UsageCheck(
            plan.target.context_tokens,
            plan.max_tokens,
            plan.prompt.tokens,
            attempt.age_s,
            attempt.violated,
            is_limit_told=plan.is_limit_told,
        )

    def describe_empty(self) -> ModelCall:
        """Describes the call if its answer was nothing."""
        reported = self.first.usage
        believed = None if reported is None else self.usage_check.believed(reported, 0)
        return describe_call(self.plan.target, Usage(prompt_tokens=self.plan.prompt.tokens), believed, reported)

    async def discard(self) -> None:
        """Ends an answer of nothing, in whose place another model's is passed on."""
        await self.rest.aclose()
        self.call.end(CallEnd.EMPTY, None, NOT_RELAYED, self)


class Reading:
    """The context in which an answer is read; at its end the call is over."""

    __slots__ = ("_read_end", "_upstream")

    def __init__(self, upstream: Upstream, read_end: ReadEnd) -> None:
        self._upstream = upstream
        self._read_end = read_end

    def __enter__(self) -> None:
        """Leaves the answer to whoever reads it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        answer = self._read_end()
        if isinstance(error, ProviderError):
            end = CallEnd.CUT
        else:
            end = CallEnd.LEFT if answer.finished is None else CallEnd.ANSWERED
        self._upstream.call.end(end, error, answer, self._upstream)


def figures_of(plan: CallPlan, error: ProviderError) -> Figures | None:
    """Returns the figures of a prompt that the model refused for its length."""
    if error.figures is None or plan.is_limit_told:
        return error.figures
    # The total is of the prompt and a limit that is the server's own.
    return replace(error.figures, total_tokens=None)


def open_call(plan: CallPlan, model_state: ModelState, model_use: ModelUse, number: int) -> OpenCall:
    """Opens an admitted call, the so many-th of a chat."""
    attempt = model_state.breaker.start_attempt(plan.whole_s or 0.0)
    span = begin_span(plan.target, number, plan.max_tokens, model_state.provider.telemetry_name)
    return OpenCall(plan, model_state, model_use, attempt, span)
