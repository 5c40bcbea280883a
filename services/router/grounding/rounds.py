"""Runs a chat whose model may search: several rounds form the one answer that the client sees.

A round that ends with calls of our function is followed by the searches and another round. Calls are counted but never
shown; text is streamed to the client. Usage is the sum over the rounds.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from legato_protos.router.v1.router_pb2 import ChatOpen, Finished
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.process import failpoints
from services.router.answers.answer_end import NOT_RELAYED, AnswerEnd
from services.router.answers.grants import TokenAllowance
from services.router.answers.relay import LENGTH_REASONS, Relay, canonical_reason
from services.router.answers.tool_call_check import is_object
from services.router.answers.toolcalls import ToolCalls
from services.router.answers.usage_check import UsageCheck
from services.router.calls.chat_limits import with_max_tokens
from services.router.calls.upstream import Reading, Upstream
from services.router.grounding.search_tool import TOOLS, TOOLS_TO_EXPLAIN_CALLS, SearchCall, SearchTool
from services.router.models.spending import describe_call
from services.router.prompts import tokens
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Prompt
from services.router.providers.base import Piece, ProviderUsage, as_count
from services.router.schema.messages import NULL, Message, PastFunction, PastToolCall, encode_string
from services.rules.usage import COLUMNS, PART_OF

# Separates the texts of two rounds.
BETWEEN_TEXTS: Final = "\n\n"
# Limit on a search call's arguments, which are normally a few words.
LONGEST_QUERY_CHARACTERS: Final = 64 * 1024

# No credit for another round, or no context left for the results.
_NO_MORE_ROUNDS: Final = frozenset({Reason.CREDITS_EXHAUSTED, Reason.CONTEXT_EXCEEDED})

# Its answer is offered to the rounds as it is read.
OpenUpstream = Callable[[ChatOpen, Prompt, "Rounds"], Awaitable[Upstream]]


class _Round:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.has_spoken = False
        self.usage: ProviderUsage | None = None
        # The same before it was checked.
        self.reported: ProviderUsage | None = None
        self._finish_reason: str | None = None
        self._tool_calls = ToolCalls()
        self._calls: dict[int, SearchCall] = {}

    @property
    def calls(self) -> list[SearchCall]:
        return list(self._calls.values())

    @property
    def asks_for_search(self) -> bool:
        # A truncated call does not count.
        return bool(self._calls) and self._tool_calls.all_named and self._finish_reason not in LENGTH_REASONS

    @property
    def finish_reason(self) -> str | None:
        """The finish reason for the client, which does not see the calls."""
        return "stop" if self._calls and self._finish_reason not in LENGTH_REASONS else self._finish_reason

    def finished(self, prompt_tokens: int, output_tokens: int) -> Finished:
        """Returns how this round ended, for the model's health; with our own counts if the provider sent none."""
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=output_tokens)
        if self.usage is not None:
            usage = self.usage.charged(prompt_tokens, output_tokens)
        return Finished(finish_reason=canonical_reason(self._finish_reason, has_calls=bool(self._calls)), usage=usage)

    def report(self, reported: ProviderUsage | None, usage: ProviderUsage | None) -> None:
        """Records the usage at the end of the round, as the provider reported it and as far as that is plausible."""
        self.reported, self.usage = reported, usage

    def record(self, piece: Piece) -> Piece:
        """Records a piece and returns what is passed on: the texts. Calls are counted like reasoning."""
        hidden = piece.hidden
        for fragment in piece.tool_calls:
            delta = self._tool_calls.add_fragment(fragment)
            if delta is not None:
                call = self._calls.setdefault(delta.index, SearchCall(delta.id, delta.name))
                if len(call.arguments) <= LONGEST_QUERY_CHARACTERS:
                    # Longer arguments are invalid anyway, so they are not accumulated further.
                    call.add(delta.arguments)
                hidden += delta.name + delta.arguments
        self.texts += piece.contents
        self.has_spoken = self.has_spoken or bool(piece.contents)
        self._finish_reason = piece.finish_reason or self._finish_reason
        return Piece(contents=list(piece.contents), refuses=piece.refuses, hidden=hidden)


@dataclass(slots=True, repr=False)
class Rounds:
    chat: ChatOpen
    prompt: Prompt
    tool: SearchTool
    allowance: TokenAllowance
    relay: Relay
    open_upstream: OpenUpstream
    _round: _Round = field(default_factory=_Round)
    # Of the prompts of the rounds before this one.
    _earlier_prompt_tokens: int = 0
    _usages: list[ProviderUsage | None] = field(default_factory=list)
    # The usage check of the current round, and the output tokens before it.
    _usage_check: UsageCheck | None = None
    _output_tokens_before: int = 0
    _has_spoken: bool = False
    # The present round's, and those of the rounds before.
    _upstream: Upstream | None = None
    # How the present round ended; None: it runs, or broke off.
    _round_end: AnswerEnd | None = None
    _past_calls: list[ModelCall] = field(default_factory=list)
    # Whether the answer is complete, not waiting for a search.
    _is_over: bool = False

    def begin_without_search(self, prompt: Prompt) -> None:
        """Is called before the first round if no model takes the search."""
        self.prompt = prompt

    async def pass_on(self, upstream: Upstream) -> None:
        """Relays the first round, which has begun, and all that follow."""
        opened: Upstream | None = upstream
        while opened is not None:
            self._round_end = None
            with Reading(opened, self._read_end):
                await self._pass_on_round(opened)
            opened = None if self._is_over else await self._open_next()

    async def _pass_on_round(self, upstream: Upstream) -> None:
        self._output_tokens_before = self.relay.output_tokens
        self._usage_check, self._upstream = upstream.usage_check, upstream
        piece: Piece | None = upstream.first
        async with aclosing(upstream.rest) as rest:
            while piece is not None and await self._pass_on(piece):
                piece = await anext(rest, None)
                failpoints.hit("router.passed_on")
        self._round_end = AnswerEnd(
            self._finished_round(), self._round.usage, is_beyond_limit=self.relay.went_beyond_limit
        )
        self._past_calls.append(self._describe(upstream))
        self._upstream = None

    def _read_end(self) -> AnswerEnd:
        return self._round_end or NOT_RELAYED

    def describe_calls(
        self, counted: Usage, believed: ProviderUsage | None, reported: ProviderUsage | None
    ) -> Iterable[ModelCall]:
        """Describes the calls of all rounds, when the answer finishes."""
        return self._past_calls if self._upstream is None else [*self._past_calls, self._describe(self._upstream)]

    def _describe(self, upstream: Upstream) -> ModelCall:
        usage = self._finished_round().usage
        return describe_call(upstream.model_state.target, usage, self._round.usage, self._round.reported)

    def _finished_round(self) -> Finished:
        output_tokens = self.relay.output_tokens - self._output_tokens_before
        return self._round.finished(self.prompt.tokens, output_tokens)

    def take(self, piece: Piece) -> bool:
        """Relays a piece of a text that has begun, if nothing has to be awaited for it."""
        if piece.tool_calls or piece.finish_reason or not self._round.has_spoken:
            return False
        if not self.relay.take(piece):
            return False
        self._round.record(piece)
        return True

    def take_read(self, read: bytes) -> int:
        """Takes none: the text is recorded, too, so each read is parsed."""
        return 0

    async def _pass_on(self, piece: Piece) -> bool:
        is_first = not self._round.has_spoken
        shown = self._round.record(piece)
        if shown.contents and self._has_spoken and is_first:
            shown.contents.insert(0, BETWEEN_TEXTS)
        if piece.last:
            self._round.report(piece.usage, self._believed(piece.usage, shown))
            self._usages.append(self._round.usage)
            if not self._round.asks_for_search or not self.tool.may_search:
                self._is_over = True
                shown.finish(self._round.finish_reason, _sum(self._usages))
        goes_on = await self.relay.pass_on(shown)
        self._is_over = self._is_over or not goes_on
        return goes_on and not piece.last

    def _believed(self, usage: ProviderUsage | None, shown: Piece) -> ProviderUsage | None:
        if usage is None or self._usage_check is None:
            return usage
        # This piece is not counted yet; its characters are an upper estimate of its tokens.
        uncounted_characters = sum(map(len, shown.contents)) + len(shown.hidden)
        counted_tokens = self.relay.output_tokens - self._output_tokens_before
        return self._usage_check.believed(usage, counted_tokens + uncounted_characters)

    async def _open_next(self) -> Upstream | None:
        """Searches, and opens the next round; returns None if the credit or the client's max_tokens is used up."""
        calls = self._round.calls
        self._has_spoken = self._has_spoken or self._round.has_spoken
        answers = await self.tool.answer(calls)
        said = "".join(self._round.texts)
        self._earlier_prompt_tokens += self.prompt.tokens
        self.prompt = _continued(self.prompt, said, calls, answers, may_search=self.tool.may_search)
        self.allowance.begin_round(self._earlier_prompt_tokens, self.relay.output_tokens)
        self._round = _Round()
        chat = self.chat
        if chat.HasField("max_tokens"):
            chat = with_max_tokens(chat, max(0, chat.max_tokens - self._used_output_tokens()))
        if chat.max_tokens or not chat.HasField("max_tokens"):
            try:
                upstream = await self.open_upstream(chat, self.prompt, self)
                prompt_tokens = self._earlier_prompt_tokens + self.prompt.tokens
                self.relay.begin_round(prompt_tokens, upstream.plan.max_tokens, upstream.plan.longest_tokens)
                return upstream
            except LegatoError as error:
                if error.reason not in _NO_MORE_ROUNDS:
                    raise
        # Earlier rounds were requested and are charged, even if nothing of them was shown.
        self.tool.take_back()
        await self.relay.cut_short()
        return None

    def _used_output_tokens(self) -> int:
        """Returns the output so far; hidden reasoning is only in the provider's count."""
        believed = _sum(self._usages)
        return max(self.relay.output_tokens, (believed.completion_tokens if believed is not None else None) or 0)


def _sum(usages: list[ProviderUsage | None]) -> ProviderUsage | None:
    """Sums the usage over rounds; a count missing in one round is missing in the sum, but for parts."""
    reported = [usage for usage in usages if usage is not None]
    if len(reported) < len(usages):
        return None
    sums: dict[str, Any] = {}
    for name in COLUMNS:
        counts = [getattr(usage, name) for usage in reported]
        is_known = name in PART_OF or None not in counts
        sums[name] = as_count(sum(count or 0 for count in counts)) if is_known else None
    return ProviderUsage(**sums)


def _continued(prompt: Prompt, said: str, calls: list[SearchCall], answers: list[str], *, may_search: bool) -> Prompt:
    """Returns the prompt with the calls and their results appended."""
    asking = Message(
        role="assistant", content=encode_string(said) if said else NULL, tool_calls=[_past_call(call) for call in calls]
    )
    answering = [
        Message(role="tool", tool_call_id=call.call_id, content=encode_string(answer))
        for call, answer in zip(calls, answers, strict=True)
    ]
    added = [asking, *answering]
    texts = [said, *answers, *(call.name + call.arguments for call in calls)]
    return replace(
        prompt,
        messages=prompt.messages.append(added),
        tokens=prompt.tokens + sum(map(tokens.count, texts)) + TOKENS_PER_MESSAGE * len(added),
        # The tool is still offered, since the conversation contains calls of it.
        offered_tools=TOOLS if may_search else TOOLS_TO_EXPLAIN_CALLS,
    )


def _past_call(call: SearchCall) -> PastToolCall:
    # Providers accept nothing but objects as arguments.
    function = PastFunction(call.name, encode_string(call.arguments if is_object(call.arguments) else "{}"))
    return PastToolCall(call.call_id, encode_string("function"), function)
