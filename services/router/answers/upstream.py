"""A model, from when it is asked until its answer has been read."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType

from protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER, Finished
from services.chassis.telemetry.tracing import Span
from services.router.answers.plausible import UsageCheck, Violation
from services.router.prompts.calibration import CountedPrompt
from services.router.providers.base import CannotDo, Failure, Piece, Provider, ProviderCall, ProviderError
from services.router.providers.http.connection import ConnectionRefused
from services.router.routing.health import Attempt
from services.router.routing.model_states import ModelState
from services.router.routing.saturation import ModelUse
from services.router.spans import end_question


@dataclass(slots=True)
class Upstream:
    """A model that has begun to answer. Whoever reads the rest does so inside of it."""

    model_state: ModelState
    model_use: ModelUse
    attempt: Attempt
    first: Piece
    rest: AsyncGenerator[Piece, None]
    prompt: CountedPrompt
    max_tokens: int
    is_whole: bool
    span: Span | None = None
    # Once that has been told: how it ended.
    finished: Finished | None = None
    # And whether it was cut there, because it did not keep to `max_tokens`.
    went_beyond_limit: bool = False

    def judge(self, prompt_tokens: int) -> UsageCheck:
        """Of what it says that it has used for a prompt that has so many tokens by our count."""
        target, attempt = self.model_state.target, self.attempt
        return UsageCheck(target.context_tokens, self.max_tokens, prompt_tokens, attempt.age_s, attempt.violated)

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, ProviderError):
            self.attempt.failed()
        if self.finished is not None:
            usage = self.finished.usage
            # A count that is not ours can only be the model's, whoever counted the rest.
            if self.finished.usage_source == USAGE_SOURCE_PROVIDER or usage.prompt_tokens != self.prompt.tokens:
                self.model_state.calibration.note(self.prompt, usage.prompt_tokens)
            self.attempt.finished(usage.prompt_tokens, usage.completion_tokens)
        if self.went_beyond_limit:
            self.attempt.violated(Violation.MAX_TOKENS)
        end_question(self.span, error, self.finished)
        self.model_use.release()
        self.model_state.pooled.release()


async def begin(
    provider: Provider, call: ProviderCall, model_use: ModelUse, attempt: Attempt, patience_s: float | None
) -> tuple[Piece, AsyncGenerator[Piece, None]]:
    """The first piece, and where the others come from. Whatever goes wrong, the chat's place is given back."""
    try:
        pieces = provider.answer(call)
        first = await (anext(pieces) if patience_s is None else _first_within(patience_s, pieces))
    except BaseException as error:
        model_use.release()
        if not isinstance(error, ProviderError) or isinstance(error, CannotDo):
            attempt.given_up()
        elif isinstance(error, ConnectionRefused) and model_use.are_others_answered:
            # Whoever answers others and takes no further connection is full, and not away.
            error.failure = Failure.BUSY
            attempt.given_up()
        elif error.failure is Failure.PROVIDER:
            attempt.failed()
        else:
            attempt.declined()
        raise
    model_use.begun(first)
    attempt.begun()
    return first, pieces


async def _first_within(patience_s: float, pieces: AsyncGenerator[Piece, None]) -> Piece:
    try:
        async with asyncio.timeout(patience_s):
            return await anext(pieces)
    except TimeoutError:
        raise ProviderError("did not answer in time") from None
