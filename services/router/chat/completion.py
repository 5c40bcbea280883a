"""Serves one chat: class, character, model, relay."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from legato_protos.router.v1.grounding_pb2 import PreviewGroundingResponse
from legato_protos.router.v1.router_pb2 import ChatOpen, ChatRequest, ProviderCost, Started
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import open_prompt_memory
from services.chassis.process import failpoints
from services.chassis.rpc.messages import to_message
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import STEP_BOUNDS_S, Histogram
from services.chassis.telemetry.tracing import current_span
from services.chassis.timing.deadlines import Clock, TimeLimit
from services.router.answers.grants import ChatConversation, TokenAllowance
from services.router.answers.relay import DescribeCalls, Relay
from services.router.answers.seam import Seam
from services.router.calls.continuation import (
    Continuation,
    OpenContinuation,
    may_be_continued,
    new_transcript,
    pass_on_call,
)
from services.router.calls.fallback import Targets
from services.router.calls.refusals import NotAccepted
from services.router.calls.search import Attempts
from services.router.calls.upstream import Upstream
from services.router.grounding.grounding import Grounded, Grounding
from services.router.grounding.rounds import Rounds
from services.router.grounding.search_tool import SearchTool
from services.router.models.spending import describe_call
from services.router.models.states import ModelState, ModelStates
from services.router.prompts import tokens
from services.router.prompts.calibration import CountedPrompt
from services.router.prompts.conversation import digest_cache_key, digest_conversation, digest_instructions
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Character, Prompt, compose_prompt
from services.router.providers.base import ProviderError, ProviderUsage
from services.router.routes.target import Target
from services.rules.model_classes import AUTO, CLASSES, DEFAULT_CLASS, auto_class


@dataclass(slots=True)
class _ChatRecord:
    """The facts about a chat for its one log line."""

    request_id: str
    class_id: str = ""
    character_version: str | None = None
    attempts: Attempts = field(default_factory=Attempts)
    relay: Relay | None = None
    # None if the answer would not be continued.
    continuation: Continuation | None = None
    end: str = "failed"
    reason: str | None = None


class _OpenedChat:
    """A chat as its caller opened it, with its prompt until that is composed."""

    __slots__ = ("_size_bytes", "chat", "memory", "messages_json", "tools_json")

    def __init__(self, chat: ChatOpen, prompt_memory: FairBudget) -> None:
        """Raises SATURATED if there is no memory for the prompt."""
        self.messages_json, self.tools_json = chat.messages_json, chat.tools_json
        self._size_bytes = len(self.messages_json) + len(self.tools_json) + len(chat.parameters_json)
        self.memory = prompt_memory.hold(chat.account_id, self._size_bytes)
        if self.memory.charged:
            # A message keeps its memory until all of it is gone, so a large one is replaced by what else was in it.
            chat.ClearField("messages_json")
            chat.ClearField("tools_json")
            kept = ChatOpen()
            kept.CopyFrom(chat)
            chat = kept
        self.chat = chat

    async def compose(self, character: Character) -> Prompt:
        """Returns the prompt, which alone refers to the caller's bytes from here on."""
        messages_json, tools_json = self.messages_json, self.tools_json
        self.messages_json = self.tools_json = b""
        prompt = await compose_prompt(
            messages_json,
            tools_json,
            character,
            tool_choice_json=self.chat.tool_choice_json,
            parameters_json=self.chat.parameters_json,
        )
        if self.memory.charged:
            self.memory.grow_to(self._size_bytes + prompt.messages.object_bytes)
        return prompt


class Completions:
    def __init__(
        self,
        model_states: ModelStates,
        targets: Targets,
        clock: Clock,
        log: Log,
        grounding: Grounding | None = None,
        prompt_memory: FairBudget | None = None,
    ) -> None:
        """`grounding` is None if it is not configured."""
        self.model_states = model_states
        self._targets = targets
        self._clock = clock
        self._log = log
        self._grounding = grounding
        self._running = 0
        self._prompt_memory = prompt_memory or open_prompt_memory()
        # Time from a chat's arrival until a model is called, for metrics.
        self.prepare_times_s = Histogram(STEP_BOUNDS_S)
        # Answers that were cut and could be continued, by outcome.
        self.continuations = {"continued": 0, "failed": 0}

    async def serve(self, conversation: ChatConversation) -> None:
        opened = _OpenedChat(_opening(await conversation.receive()), self._prompt_memory)
        chat = opened.chat
        allowance = TokenAllowance(conversation, chat.grant)
        record = _ChatRecord(chat.request_id)
        began_s = self._clock.elapsed_s()
        self._running += 1
        try:
            await self._converse(opened, conversation, allowance, record)
            record.end = "complete"
        except asyncio.CancelledError:
            record.end = "client_gone"
            raise
        except ProviderError as error:
            record.end, record.reason = "upstream_cut", Reason.UPSTREAM_FAILED
            record.attempts.http_status = error.http_status
            raise LegatoError(Reason.UPSTREAM_FAILED, "The model's answer was interrupted.") from None
        except LegatoError as error:
            record.end, record.reason = "refused", error.reason
            raise
        finally:
            self._running -= 1
            opened.memory.release()
            allowance.close()
            if record.relay is not None:
                record.relay.describe_calls = None
            self._log_end(record, began_s)

    async def preview(self, chat: ChatOpen) -> PreviewGroundingResponse:
        """Returns what a model would be sent for a chat without tools; nothing is sent."""
        class_id = resolve_class(chat.model, chat.preferred_class, _allowed(chat))
        character = self.model_states.routes.characters[class_id]
        opened = _OpenedChat(chat, self._prompt_memory)
        with opened.memory:
            prompt = await opened.compose(character)
        targets = self._models_of(class_id)
        # The smallest window of the class.
        context_tokens = min(target.context_tokens for target in targets)
        response = PreviewGroundingResponse(class_id=class_id, context_tokens=context_tokens)
        response.tokens.character = tokens.count_once(character.text) + TOKENS_PER_MESSAGE
        response.tokens.question = prompt.tokens - response.tokens.character
        if self._grounding is not None:
            await self._grounding.preview(chat, prompt, targets, response)
        return response

    async def count_tokens(self, chat: ChatOpen) -> int:
        """Returns the tokens of a prompt as the first model of its class usually counts; nothing is sent."""
        class_id = resolve_class(chat.model, chat.preferred_class, _allowed(chat))
        opened = _OpenedChat(chat, self._prompt_memory)
        with opened.memory:
            prompt = await opened.compose(self.model_states.routes.characters[class_id])
        counted = CountedPrompt(prompt.tokens, bool(prompt.tools.json), chat.account_id)
        ratios = self.model_states.by_class[class_id].all[0].calibration.ratios(counted)
        return prompt.tokens if ratios is None else round(ratios.middle * prompt.tokens)

    async def drain(self) -> None:
        """Waits until no chat is running."""
        while self._running:
            await asyncio.sleep(0.02)

    async def _converse(
        self, opened: _OpenedChat, conversation: ChatConversation, allowance: TokenAllowance, record: _ChatRecord
    ) -> None:
        chat = opened.chat
        record.class_id = resolve_class(chat.model, chat.preferred_class, _allowed(chat))
        character = self.model_states.routes.characters[record.class_id]
        record.character_version = character.version
        prompt, cite = await opened.compose(character), None
        if self.model_states.by_class[record.class_id].tells_conversations:
            # Before grounding adds to the client's messages, which follow the character.
            prompt.conversation = digest_conversation(chat.account_id, islice(prompt.messages.parsed, 1, None))
            prompt.cache_key = digest_instructions(chat.account_id, prompt.messages.parsed, prompt.tools.json)
        if chat.prompt_cache_key_digest:
            prompt.cache_key = digest_cache_key(chat.account_id, chat.prompt_cache_key_digest)
        if self._grounding is not None and not prompt.tools.json:
            grounded = await self._grounding.ground(chat, prompt, self._models_of(record.class_id))
            prompt, cite = grounded.prompt, grounded.cite
            if grounded.tool is not None:
                await self._converse_in_rounds(chat, grounded, grounded.tool, conversation, allowance, record)
                return
            del grounded
        only_one_call, is_kept = prompt.parameters.wants_one_call, self._is_kept(record.class_id, chat, prompt)
        transcript = new_transcript() if is_kept else None
        record.relay = relay = Relay(
            conversation, only_one_call=only_one_call, packs=chat.takes_packed, cite=cite, transcript=transcript
        )
        upstream = await self._targets.open(record.class_id, chat, prompt, allowance, record.attempts, relay)
        if is_kept:
            open_next = self._open_next(record.class_id, allowance)
            record.continuation = Continuation(chat, prompt, allowance, relay, open_next, upstream, upstream.max_tokens)
        else:
            # The answer has begun, so no other model will be asked.
            opened.memory.release()
        del prompt
        started, is_covered = _started(record, upstream), upstream.is_whole
        covering = TokenAllowance(conversation, None) if is_covered else allowance
        prompt_tokens, judge = upstream.prompt.tokens, upstream.usage_check
        relay.begin(
            started,
            prompt_tokens,
            covering,
            upstream.longest_tokens,
            judge,
            is_covered_whole=is_covered,
            call_check=upstream.call_check,
            describe_calls=_describe_calls(record, upstream),
        )
        await self._pass_on(upstream, relay, record)
        failpoints.hit("router.finished")

    async def _pass_on(self, upstream: Upstream, relay: Relay, record: _ChatRecord) -> None:
        """Relays the answer, and what continues it if it is cut. The total timeout covers the models and the client,
        whichever is slow."""
        if upstream.is_whole and upstream.first.last:
            # One message, for which nothing is waited.
            with upstream:
                await pass_on_call(upstream, relay)
            return
        late = ProviderError("took too long to answer")
        over_at_s = self._clock.elapsed_s() + self._time_left_s(upstream)
        opened: Upstream | None = upstream
        while opened is not None:
            try:
                with opened, TimeLimit(over_at_s - self._clock.elapsed_s(), late):
                    await pass_on_call(opened, relay, record.continuation)
                return
            except ProviderError as error:
                if record.continuation is None or error is late:
                    raise
                with TimeLimit(over_at_s - self._clock.elapsed_s(), late):
                    opened = await self._go_on(opened, error, record.continuation)

    async def _go_on(self, cut: Upstream, error: ProviderError, continuation: Continuation) -> Upstream | None:
        try:
            upstream = await continuation.open_next(cut, error)
        except ProviderError:
            self.continuations["failed"] += 1
            raise
        self.continuations["continued"] += upstream is not None
        forget_origin(error)
        return upstream

    def _is_kept(self, class_id: str, chat: ChatOpen, prompt: Prompt) -> bool:
        models = self.model_states.by_class[class_id]
        return models.may_continue and may_be_continued(chat, prompt)

    def _open_next(self, class_id: str, allowance: TokenAllowance) -> OpenContinuation:
        def open_next(chat: ChatOpen, prompt: Prompt, seam: Seam, cut: ModelState) -> Awaitable[Upstream]:
            # The call that was cut counts as the first attempt.
            return self._targets.open(class_id, chat, prompt, allowance, Attempts(count=1), seam, cut=cut)

        return open_next

    async def _converse_in_rounds(
        self,
        chat: ChatOpen,
        grounded: Grounded,
        tool: SearchTool,
        conversation: ChatConversation,
        allowance: TokenAllowance,
        record: _ChatRecord,
    ) -> None:
        """Serves a chat whose model may search, within the same total timeout as any other answer."""

        def open_round(chat: ChatOpen, prompt: Prompt, rounds: Rounds) -> Awaitable[Upstream]:
            return self._targets.open(record.class_id, chat, prompt, allowance, Attempts(), rounds)

        record.relay = relay = Relay(conversation, cite=grounded.cite)
        rounds = Rounds(chat, grounded.prompt, tool, allowance, relay, open_round)
        try:
            upstream = await self._targets.open(
                record.class_id, chat, grounded.prompt, allowance, record.attempts, rounds
            )
        except NotAccepted:
            # Our fault, not the client's: the model takes no tools, and the routes do not say so.
            target = record.attempts.target
            self._log.warning("search.refused", model_name=target.model_name if target else None)
            # It may have been the last attempt, so none of those before counts.
            record.attempts.refits = record.attempts.count
            rounds.prompt = grounded.prompt_without_search
            upstream = await self._targets.open(
                record.class_id, chat, rounds.prompt, allowance, record.attempts, rounds
            )
        started = _started(record, upstream)
        relay.begin(
            started,
            upstream.prompt.tokens,
            allowance,
            upstream.longest_tokens,
            describe_calls=lambda *usage: [*record.attempts.other_calls, *rounds.describe_calls(*usage)],
        )
        with TimeLimit(self._time_left_s(upstream), ProviderError("took too long to answer")):
            await rounds.pass_on(upstream)
        failpoints.hit("router.finished")

    def _models_of(self, class_id: str) -> Sequence[Target]:
        return self.model_states.by_class[class_id].route.targets

    def _time_left_s(self, upstream: Upstream) -> float:
        return upstream.model_state.target.timeouts.total_s - (self._clock.elapsed_s() - upstream.attempt.began_s)

    def _log_end(self, record: _ChatRecord, began_s: float) -> None:
        relay, target = record.relay, record.attempts.target
        finished = relay.finished if relay is not None else None
        if record.attempts.first_asked_at_s is not None:
            self.prepare_times_s.observe(record.attempts.first_asked_at_s - began_s)
        span = current_span()
        if span is not None:
            span.attributes |= {"legato.request_id": record.request_id, "legato.class": record.class_id}
            span.attributes["legato.end"] = record.end
        self._log.info(
            "chat.ended",
            request_id=record.request_id,
            class_id=record.class_id,
            character_version=record.character_version,
            routes_version=record.attempts.routes_version or None,
            model_name=target.model_name if target else None,
            provider=target.provider if target else None,
            attempt=record.attempts.count,
            continuations=record.continuation.count if record.continuation else 0,
            http_status=record.attempts.http_status,
            prompt_tokens=finished.usage.prompt_tokens if finished else None,
            completion_tokens=finished.usage.completion_tokens if finished else None,
            finish_reason=finished.finish_reason if finished else None,
            end=record.end,
            reason=record.reason,
            duration_ms=round(1000 * (self._clock.elapsed_s() - began_s), 1),
            **({} if span is None else {"trace_id": span.trace_id}),
        )


def _started(record: _ChatRecord, upstream: Upstream) -> Started:
    target = upstream.model_state.target
    return Started(
        class_id=record.class_id,
        max_tokens=upstream.max_tokens,
        attempt=record.attempts.count,
        ignored=upstream.ignored,
        routes_version=record.attempts.routes_version,
        provider=target.provider,
        model_name=target.model_name,
        cost=None if target.cost is None else to_message(ProviderCost, target.cost),
    )


def _describe_calls(record: _ChatRecord, upstream: Upstream) -> DescribeCalls:
    other_calls, continuation = record.attempts.other_calls, record.continuation

    def describe(counted: Usage, told: ProviderUsage | None, said: ProviderUsage | None) -> Iterable[ModelCall]:
        if continuation is not None:
            return [*other_calls, *continuation.describe_calls(counted, told, said)]
        return [*other_calls, describe_call(upstream.model_state.target, counted, told, said)]

    return describe


def _opening(request: ChatRequest) -> ChatOpen:
    if request.WhichOneof("kind") != "open":
        raise LegatoError(Reason.REQUEST_INVALID, "A chat must be opened first.")
    if not request.open.HasField("grant"):
        # It could not be charged.
        raise LegatoError(Reason.REQUEST_INVALID, "A chat needs a grant of the credit that is held for it.")
    return request.open


def resolve_class(model: str, preferred_class: str, allowed: Collection[str] = CLASSES) -> str:
    """Returns the class that serves; one that is not allowed is refused like an unknown one."""
    class_id = model
    if model in ("", AUTO):
        class_id = auto_class(preferred_class or DEFAULT_CLASS, allowed)
    usable = [each for each in CLASSES if each in allowed]
    if class_id not in usable:
        hint = f" Use one of {', '.join((AUTO, *usable))}." if usable else ""
        raise LegatoError(Reason.MODEL_UNKNOWN, f"There is no such model.{hint}", param="model")
    return class_id


def _allowed(chat: ChatOpen) -> Collection[str]:
    return chat.allowed_classes.class_ids if chat.HasField("allowed_classes") else CLASSES
