"""Runs one chat: prompt, model, relay; and logs how it ended."""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from legato_protos.router.v1.router_pb2 import ChatOpen, ProviderCost, Started
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.process import failpoints
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import current_span
from services.chassis.timing.deadlines import Clock, TimeLimit
from services.router.answers.grants import ChatConversation, TokenAllowance
from services.router.answers.relay import Relay
from services.router.answers.seam import Seam
from services.router.calls.attempts import Attempts
from services.router.calls.continuation import (
    Continuation,
    OpenContinuation,
    may_be_continued,
    new_transcript,
    pass_on_call,
)
from services.router.calls.fallback import Targets
from services.router.calls.refusals import NotAccepted
from services.router.calls.upstream import Reading, Upstream
from services.router.chat.class_choice import class_of
from services.router.chat.opened_chat import OpenedChat
from services.router.grounding.grounding import Grounded, Grounding
from services.router.grounding.rounds import Rounds
from services.router.grounding.search_tool import SearchTool
from services.router.models.spending import describe_call
from services.router.models.states import ModelState, ModelStates
from services.router.prompts.conversation import digest_cache_key, digest_conversation, digest_instructions
from services.router.prompts.prompt import Prompt
from services.router.providers.base import ProviderError, ProviderUsage
from services.router.reasoning.answer_seals import AnswerSeals
from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.routes.target import Target


@dataclass(frozen=True, slots=True)
class ChatParts:
    """The parts that all chats of this router use."""

    model_states: ModelStates
    targets: Targets
    clock: Clock
    log: Log
    # None: it is not configured.
    grounding: Grounding | None
    # Of what models think, for their next turns.
    seals: ReasoningSeals
    # Answers that were cut and could be continued, by outcome.
    continuations: dict[str, int]


class RunningChat:
    """One chat, and the facts about it for its one log line."""

    __slots__ = (
        "_allowance",
        "_began_s",
        "_character_version",
        "_chat",
        "_class_id",
        "_continuation",
        "_conversation",
        "_end",
        "_opened",
        "_parts",
        "_reason",
        "_relay",
        "attempts",
    )

    def __init__(self, parts: ChatParts, opened: OpenedChat, conversation: ChatConversation, began_s: float) -> None:
        self._parts = parts
        self._opened = opened
        self._chat = opened.chat
        self._conversation = conversation
        self._allowance = TokenAllowance(conversation, opened.chat.grant)
        self._began_s = began_s
        self.attempts = Attempts()
        self._class_id = ""
        self._character_version: str | None = None
        self._relay: Relay | None = None
        # None if the answer would not be continued.
        self._continuation: Continuation | None = None
        self._end = "failed"
        self._reason: str | None = None

    def break_off(self, error: ProviderError) -> LegatoError:
        """Records that an answer was cut; returns the error for the client."""
        self._end, self._reason = "upstream_cut", Reason.UPSTREAM_FAILED
        self.attempts.fail(error.http_status)
        return LegatoError(Reason.UPSTREAM_FAILED, Sentence("answer_interrupted"))

    def refuse(self, reason: Reason) -> None:
        self._end, self._reason = "refused", reason

    def leave(self) -> None:
        """Records that the client has gone."""
        self._end = "client_gone"

    def close(self) -> None:
        """Gives back what the chat held, and logs how it ended."""
        self._opened.memory.release()
        self._allowance.close()
        if self._relay is not None:
            self._relay.close()
        self._log_end()

    async def converse(self) -> None:
        """Answers the chat."""
        chat, model_states = self._chat, self._parts.model_states
        self._class_id = class_id = class_of(chat)
        character = model_states.routes.characters[class_id]
        self._character_version = character.version
        if not chat.HasField("shows_reasoning"):
            chat.shows_reasoning = model_states.by_class[class_id].route.show_reasoning
        prompt, cite = await self._opened.compose(character, self._parts.seals), None
        if model_states.by_class[class_id].needs_conversations or chat.prompt_cache_key_digest:
            self._identify(prompt)
        if self._parts.grounding is not None and not prompt.tools.json:
            grounded = await self._parts.grounding.ground(chat, prompt, self._targets_of_class())
            prompt, cite = grounded.prompt, grounded.cite
            if grounded.tool is not None:
                await self._converse_in_rounds(grounded, grounded.tool)
                self._end = "complete"
                return
            del grounded
        may_think = bool(prompt.tools.json) or chat.shows_reasoning
        may_continue = model_states.by_class[class_id].may_continue and self._opened.memory.may_stay
        is_kept = may_continue and may_be_continued(chat, prompt)
        self._relay = relay = Relay(
            self._conversation,
            only_one_call=prompt.parameters.wants_one_call,
            packs=chat.takes_packed,
            cite=cite,
            transcript=new_transcript() if is_kept else None,
        )
        upstream = await self._parts.targets.open(class_id, chat, prompt, self._allowance, self.attempts, relay)
        plan = upstream.plan
        if is_kept:
            open_next = _open_next(self._parts.targets, class_id, self._allowance)
            self._continuation = Continuation(
                chat, prompt, self._allowance, relay, open_next, upstream, plan.max_tokens
            )
        else:
            # The answer has begun, so no other model will be asked.
            self._opened.memory.release()
        del prompt
        started, is_covered = self._started(upstream), upstream.is_whole
        relay.begin(
            started,
            plan.prompt.tokens,
            TokenAllowance(self._conversation, None) if is_covered else self._allowance,
            plan.longest_tokens,
            upstream.usage_check,
            is_covered_whole=is_covered,
            call_check=upstream.call_check,
            describe_calls=partial(_describe_calls, self.attempts, self._continuation, upstream),
            seals=self._seals_of(upstream) if may_think else None,
        )
        await self._pass_on(upstream, relay)
        failpoints.hit("router.finished")
        self._end = "complete"

    def _seals_of(self, upstream: Upstream) -> AnswerSeals:
        taken = upstream.model_state.provider.takes_back(upstream.plan.target.model_name)
        return AnswerSeals(self._parts.seals, taken, self._chat.account_id, is_shown=self._chat.shows_reasoning)

    def _identify(self, prompt: Prompt) -> None:
        """Records what the turns of a conversation have in common, before grounding adds to the client's messages."""
        chat, conversation, cache_key = self._chat, b"", b""
        if self._parts.model_states.by_class[self._class_id].needs_conversations:
            conversation = digest_conversation(chat.account_id, islice(prompt.messages.parsed, 1, None))
            cache_key = digest_instructions(chat.account_id, prompt.messages.parsed, prompt.tools.json)
        if chat.prompt_cache_key_digest:
            cache_key = digest_cache_key(chat.account_id, chat.prompt_cache_key_digest)
        prompt.identify(conversation, cache_key)

    async def _pass_on(self, upstream: Upstream, relay: Relay) -> None:
        """Relays the answer, and what continues it if it is cut. The total timeout covers the models and the client,
        whichever is slow."""
        if upstream.is_whole and upstream.first.last:
            # One message, for which nothing is waited.
            with Reading(upstream, relay.read_end):
                await pass_on_call(upstream, relay)
            return
        late, clock, continuation = ProviderError("took too long to answer"), self._parts.clock, self._continuation
        over_at_s = clock.elapsed_s() + self._time_left_s(upstream)
        read_end = relay.read_end if continuation is None else continuation.read_end
        opened: Upstream | None = upstream
        while opened is not None:
            try:
                with Reading(opened, read_end), TimeLimit(over_at_s - clock.elapsed_s(), late):
                    await pass_on_call(opened, relay, continuation)
                return
            except ProviderError as error:
                if continuation is None or error is late:
                    raise
                with TimeLimit(over_at_s - clock.elapsed_s(), late):
                    opened = await self._go_on(opened, error, continuation)

    async def _go_on(self, cut: Upstream, error: ProviderError, continuation: Continuation) -> Upstream | None:
        try:
            upstream = await continuation.open_next(cut, error)
        except ProviderError:
            self._parts.continuations["failed"] += 1
            raise
        self._parts.continuations["continued"] += upstream is not None
        forget_origin(error)
        return upstream

    async def _converse_in_rounds(self, grounded: Grounded, tool: SearchTool) -> None:
        """Serves a chat whose model may search, within the same total timeout as any other answer."""
        class_id, allowance, targets, attempts = self._class_id, self._allowance, self._parts.targets, self.attempts

        def open_round(chat: ChatOpen, prompt: Prompt, rounds: Rounds) -> Awaitable[Upstream]:
            return targets.open(class_id, chat, prompt, allowance, Attempts(), rounds)

        self._relay = relay = Relay(self._conversation, cite=grounded.cite)
        rounds = Rounds(self._chat, grounded.prompt, tool, allowance, relay, open_round)
        try:
            upstream = await targets.open(class_id, self._chat, grounded.prompt, allowance, attempts, rounds)
        except NotAccepted:
            # Our fault, not the client's: the model takes no tools, and the routes do not say so.
            target = attempts.target
            self._parts.log.warning("search.refused", model_name=target.model_name if target else None)
            # It may have been the last attempt, so none of those before counts.
            attempts.discount()
            rounds.begin_without_search(grounded.prompt_without_search)
            upstream = await targets.open(class_id, self._chat, rounds.prompt, allowance, attempts, rounds)
        relay.begin(
            self._started(upstream),
            upstream.plan.prompt.tokens,
            allowance,
            upstream.plan.longest_tokens,
            describe_calls=lambda *usage: [*attempts.other_calls, *rounds.describe_calls(*usage)],
        )
        with TimeLimit(self._time_left_s(upstream), ProviderError("took too long to answer")):
            await rounds.pass_on(upstream)
        failpoints.hit("router.finished")

    def _targets_of_class(self) -> Sequence[Target]:
        return self._parts.model_states.by_class[self._class_id].route.targets

    def _time_left_s(self, upstream: Upstream) -> float:
        asked_at_s = upstream.call.attempt.began_s
        return upstream.plan.target.timeouts.total_s - (self._parts.clock.elapsed_s() - asked_at_s)

    def _started(self, upstream: Upstream) -> Started:
        target = upstream.plan.target
        return Started(
            class_id=self._class_id,
            max_tokens=upstream.plan.max_tokens,
            attempt=self.attempts.count,
            ignored=upstream.ignored,
            routes_version=self.attempts.routes_version,
            provider=target.provider,
            model_name=target.model_name,
            cost=None if target.cost is None else to_message(ProviderCost, target.cost),
            pads_streams=self._parts.model_states.by_class[self._class_id].route.pad_streams,
        )

    def _log_end(self) -> None:
        relay, attempts, target = self._relay, self.attempts, self.attempts.target
        finished = relay.finished if relay is not None else None
        span = current_span()
        if span is not None:
            facts = {"legato.request_id": self._chat.request_id, "legato.class": self._class_id}
            span.attributes.update(facts, **{"legato.end": self._end})
        self._parts.log.info(
            "chat.ended",
            request_id=self._chat.request_id,
            class_id=self._class_id,
            character_version=self._character_version,
            routes_version=attempts.routes_version or None,
            model_name=target.model_name if target else None,
            provider=target.provider if target else None,
            attempt=attempts.count,
            continuations=self._continuation.count if self._continuation else 0,
            http_status=attempts.http_status,
            prompt_tokens=finished.usage.prompt_tokens if finished else None,
            completion_tokens=finished.usage.completion_tokens if finished else None,
            finish_reason=finished.finish_reason if finished else None,
            end=self._end,
            reason=self._reason,
            duration_ms=round(1000 * (self._parts.clock.elapsed_s() - self._began_s), 1),
            **({} if span is None else {"trace_id": span.trace_id}),
        )


def _open_next(targets: Targets, class_id: str, allowance: TokenAllowance) -> OpenContinuation:
    def open_next(chat: ChatOpen, prompt: Prompt, seam: Seam, cut: ModelState) -> Awaitable[Upstream]:
        # The call that was cut counts as the first attempt.
        return targets.open(class_id, chat, prompt, allowance, Attempts(count=1), seam, cut=cut)

    return open_next


def _describe_calls(
    attempts: Attempts,
    continuation: Continuation | None,
    upstream: Upstream,
    counted: Usage,
    believed: ProviderUsage | None,
    reported: ProviderUsage | None,
) -> Iterable[ModelCall]:
    if continuation is not None:
        return [*attempts.other_calls, *continuation.describe_calls(counted, believed, reported)]
    return [*attempts.other_calls, describe_call(upstream.plan.target, counted, believed, reported)]
