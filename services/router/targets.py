"""The models of a class, asked in their order until one begins to answer."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from protos.router.v1.router_pb2 import ChatOpen
from services.chassis import failpoints
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason
from services.router.fit import fit_max_tokens
from services.router.grants import Allowance
from services.router.prompt import Prompt
from services.router.providers.base import Call, CannotDo, Failure, Piece, Provider, ProviderError
from services.router.routes import Routes, Target
from services.router.saturation import QUEUEING_TOLERATED_S, Saturation, Visit


@dataclass(slots=True)
class Attempts:
    """Who was asked, for the log."""

    count: int = 0
    target: Target | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model that has begun to answer. Whoever reads the rest ends the visit."""

    visit: Visit
    first: Piece
    rest: AsyncGenerator[Piece, None]
    max_tokens: int
    is_whole: bool


class Targets:
    def __init__(
        self,
        routes: Routes,
        providers: Mapping[str, Provider],
        clock: Clock,
        queueing_tolerated_s: float = QUEUEING_TOLERATED_S,
    ) -> None:
        self._classes = routes.classes
        self._providers = providers
        targets = {target for targets in routes.classes.values() for target in targets}
        self._saturations = {target: Saturation(clock, queueing_tolerated_s, target.concurrency) for target in targets}

    async def open(
        self, class_id: str, chat: ChatOpen, prompt: Prompt, allowance: Allowance, attempts: Attempts
    ) -> Upstream:
        asked_tokens = chat.max_tokens if chat.HasField("max_tokens") else None
        refusals = _Refusals()
        for target in self._classes[class_id]:
            try:
                max_tokens = fit_max_tokens(
                    asked_tokens, prompt.tokens, target.context_tokens, target.max_output_tokens
                )
            except LegatoError as error:
                # The next one may have a larger window.
                refusals.no_room = error
                continue
            await allowance.cover_prompt(prompt.tokens)
            max_tokens = allowance.fit(max_tokens)
            is_whole = not chat.stream and allowance.covers_whole(max_tokens)
            try:
                visit = self._saturations[target].enter(
                    chat.key_id or chat.account_id, prompt.tokens, is_whole=is_whole
                )
            except LegatoError as error:
                refusals.add_saturated(error)
                continue
            attempts.target = target
            attempts.count += 1
            failpoints.hit("router.asked")
            try:
                pieces = self._providers[target.provider].answer(_make_call(chat, prompt, target, max_tokens, is_whole))
                first = await _first_of(pieces, visit)
                return Upstream(visit, first, pieces, max_tokens, is_whole)
            except CannotDo as error:
                refusals.cannot = LegatoError(Reason.REQUEST_INVALID, error.what, param=error.param)
            except ProviderError as error:
                attempts.http_status = error.http_status
                if error.failure is Failure.REFUSED:
                    raise LegatoError(
                        Reason.UPSTREAM_FAILED, "The model does not accept this request as it is."
                    ) from None
                if error.failure is Failure.CONTEXT:
                    refusals.no_room = _too_long_for(target)
                if error.failure is Failure.BUSY:
                    refusals.add_saturated(visit.turned_away(error.retry_after_s))
        raise refusals.to_tell()


class _Refusals:
    """Why no model of the class has answered."""

    def __init__(self) -> None:
        self.no_room: LegatoError | None = None
        self.cannot: LegatoError | None = None
        self._saturated: LegatoError | None = None

    def add_saturated(self, error: LegatoError) -> None:
        """Of several, the one that expects room soonest."""
        if self._saturated is None or (error.retry_after_s or 0) < (self._saturated.retry_after_s or 0):
            self._saturated = error

    def to_tell(self) -> LegatoError:
        """Where one of them had no time, coming back later helps, whatever the others said."""
        return (
            self._saturated
            or self.no_room
            or self.cannot
            or LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now. Please retry.")
        )


async def _first_of(pieces: AsyncGenerator[Piece, None], visit: Visit) -> Piece:
    try:
        first = await anext(pieces)
    except BaseException:
        visit.leave()
        raise
    visit.begun(first)
    return first


def _make_call(chat: ChatOpen, prompt: Prompt, target: Target, max_tokens: int, is_whole: bool) -> Call:
    return Call(
        model_name=target.model_name,
        messages_json=prompt.messages_json,
        tools_json=chat.tools_json,
        tool_choice_json=chat.tool_choice_json,
        parameters_json=chat.parameters_json,
        max_tokens=max_tokens,
        stream=not is_whole,
    )


def _too_long_for(target: Target) -> LegatoError:
    return LegatoError(
        Reason.CONTEXT_EXCEEDED,
        f"The prompt, tool definitions included, is too long for the context window of this model, which has"
        f" {target.context_tokens} tokens. Please shorten the messages.",
        param="messages",
    )
