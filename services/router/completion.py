"""The story of one chat: class, character, fit, credit, provider, relay."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from protos.router.v1.router_pb2 import ChatOpen, Started
from services.chassis import failpoints
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log
from services.router.character import Character
from services.router.fit import fit_max_tokens
from services.router.grants import Allowance, ChatConversation
from services.router.prompt import Prompt, compose_prompt
from services.router.providers.base import Call, Failure, Piece, Provider, ProviderError
from services.router.relay import Relay
from services.router.routes import CLASSES, Routes, Target

AUTO = "auto"
DEFAULT_CLASS = "forte"


@dataclass(slots=True)
class _Story:
    """What is known about a chat so far, for its one line in the log."""

    request_id: str
    class_id: str = ""
    target: Target | None = None
    attempt: int = 0
    http_status: int | None = None
    relay: Relay | None = None
    end: str = "failed"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Upstream:
    """A model that has begun to answer."""

    first: Piece
    rest: AsyncGenerator[Piece, None]
    max_tokens: int
    is_whole: bool


class Completions:
    def __init__(
        self, routes: Routes, providers: Mapping[str, Provider], character: Character, clock: Clock, log: Log
    ) -> None:
        self._routes = routes
        self._providers = providers
        self._character = character
        self._clock = clock
        self._log = log
        self._running = 0

    async def serve(self, conversation: ChatConversation) -> None:
        request = await conversation.receive()
        if request.WhichOneof("kind") != "open":
            raise LegatoError(Reason.REQUEST_INVALID, "A chat must be opened first.")
        chat = request.open
        allowance = Allowance(conversation, chat.grant if chat.HasField("grant") else None)
        story = _Story(chat.request_id)
        began_s = self._clock.elapsed_s()
        self._running += 1
        try:
            await self._converse(chat, conversation, allowance, story)
            story.end = "complete"
        except asyncio.CancelledError:
            story.end = "client_gone"
            raise
        except ProviderError as error:
            story.end, story.reason = "upstream_cut", Reason.UPSTREAM_FAILED
            story.http_status = error.http_status
            raise LegatoError(Reason.UPSTREAM_FAILED, "The model broke off its answer.") from None
        except LegatoError as error:
            story.end, story.reason = "refused", error.reason
            raise
        finally:
            self._running -= 1
            allowance.close()
            self._tell(story, began_s)

    async def drain(self) -> None:
        """Wait until no chat runs."""
        while self._running:
            await asyncio.sleep(0.02)

    async def _converse(
        self, chat: ChatOpen, conversation: ChatConversation, allowance: Allowance, story: _Story
    ) -> None:
        story.class_id = resolve_class(chat.model, chat.preferred_class)
        prompt = await compose_prompt(chat.messages_json, chat.tools_json, self._character)
        upstream = await self._open_upstream(chat, prompt, allowance, story)
        started = Started(class_id=story.class_id, max_tokens=upstream.max_tokens)
        limit = None if upstream.is_whole else allowance
        story.relay = relay = Relay(conversation, limit, prompt.tokens, started)
        # Closing the pieces closes the connection they come from, whatever ends the chat.
        async with aclosing(upstream.rest) as rest:
            if await relay.pass_on(upstream.first):
                async for piece in rest:
                    # Here, and not where it was sent: the piece before this one has left the process by now.
                    failpoints.hit("router.passed_on")
                    if not await relay.pass_on(piece):
                        break
        failpoints.hit("router.finished")

    async def _open_upstream(self, chat: ChatOpen, prompt: Prompt, allowance: Allowance, story: _Story) -> _Upstream:
        """Ask the models of the class in their order, until one begins to answer."""
        asked_tokens = chat.max_tokens if chat.HasField("max_tokens") else None
        no_room: LegatoError | None = None
        for target in self._routes.classes[story.class_id]:
            try:
                max_tokens = fit_max_tokens(
                    asked_tokens, prompt.tokens, target.context_tokens, target.max_output_tokens
                )
            except LegatoError as error:
                # The next one may have a larger window.
                no_room = error
                continue
            await allowance.cover_prompt(prompt.tokens)
            max_tokens = allowance.fit(max_tokens)
            is_whole = not chat.stream and allowance.covers_whole(max_tokens)
            story.target = target
            story.attempt += 1
            failpoints.hit("router.asked")
            try:
                pieces = self._providers[target.provider].answer(_make_call(chat, prompt, target, max_tokens, is_whole))
                return _Upstream(await anext(pieces), pieces, max_tokens, is_whole)
            except ProviderError as error:
                story.http_status = error.http_status
                if error.failure is Failure.REFUSED:
                    raise LegatoError(
                        Reason.UPSTREAM_FAILED, "The model does not accept this request as it is."
                    ) from None
                if error.failure is Failure.CONTEXT:
                    no_room = _too_long_for(target)
        raise no_room or LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now. Please retry.")

    def _tell(self, story: _Story, began_s: float) -> None:
        relay = story.relay
        finished = relay.finished if relay is not None else None
        self._log.info(
            "chat.ended",
            request_id=story.request_id,
            class_id=story.class_id,
            model_name=story.target.model_name if story.target else None,
            provider=story.target.provider if story.target else None,
            attempt=story.attempt,
            http_status=story.http_status,
            prompt_tokens=finished.usage.prompt_tokens if finished else None,
            completion_tokens=finished.usage.completion_tokens if finished else None,
            finish_reason=finished.finish_reason if finished else None,
            end=story.end,
            reason=story.reason,
            duration_ms=round(1000 * (self._clock.elapsed_s() - began_s), 1),
        )


def resolve_class(model: str, preferred_class: str) -> str:
    class_id = model
    if model in ("", AUTO):
        class_id = preferred_class or DEFAULT_CLASS
    if class_id not in CLASSES:
        raise LegatoError(
            Reason.MODEL_UNKNOWN, f"There is no such model. Use one of {', '.join((AUTO, *CLASSES))}.", param="model"
        )
    return class_id


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
