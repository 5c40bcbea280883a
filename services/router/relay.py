"""Passes an answer on as it comes: counted, in one form, and no further than its credit goes."""

import asyncio
from collections.abc import Awaitable

from protos.router.v1.router_pb2 import (
    USAGE_SOURCE_COUNTED,
    USAGE_SOURCE_PROVIDER,
    ChatResponse,
    Finished,
    Started,
    ToolCallDelta,
)
from protos.type.v1.usage_pb2 import Usage
from services.router import tokens
from services.router.grants import Allowance, ChatConversation
from services.router.portions import is_long, portions_of
from services.router.providers.base import Piece, ProviderError, ProviderUsage
from services.router.tokens import RunningCount
from services.router.toolcalls import ToolCalls

LENGTH_REASONS = frozenset({"length", "max_tokens", "model_length"})
# A provider that failed in the middle of an answer may say so where the reason for its end belongs.
_FAILURE_REASONS = frozenset({"abort", "error", "insufficient_system_resource"})

_MOST_BYTES_A_CHARACTER = 4


class Relay:
    def __init__(
        self,
        conversation: ChatConversation,
        allowance: Allowance | None,
        prompt_tokens: int,
        started: Started,
        *,
        only_one_call: bool = False,
    ) -> None:
        """`allowance` is None where the longest answer is paid for already."""
        self._conversation = conversation
        self._allowance = allowance
        self._prompt_tokens = prompt_tokens
        self._started: Started | None = started
        self._max_tokens = started.max_tokens
        self._calls = ToolCalls(only_one=only_one_call)
        self._finish_reason: str | None = None
        self._count = _OutputCount()
        self._tokens_at_cut: int | None = None
        self.finished: Finished | None = None

    @property
    def output_tokens(self) -> int:
        if self._tokens_at_cut is not None:
            return self._tokens_at_cut
        # A model keeps to its limit by a vocabulary of its own. Whoever set the limit pays no more than it, even
        # where our count has to stand for the model's.
        return min(self._count.tokens, self._max_tokens)

    def pass_on(self, piece: Piece) -> Awaitable[bool]:
        """Whether there is any use in reading on."""
        return self._pass_on_in_portions(piece) if is_long(piece) else self._pass_on(piece)

    async def _pass_on_in_portions(self, piece: Piece) -> bool:
        for portion in portions_of(piece):
            if not await self._pass_on(portion):
                return False
        return True

    async def _pass_on(self, piece: Piece) -> bool:
        contents = piece.contents
        deltas: list[ToolCallDelta] = []
        if piece.tool_calls:
            deltas = [delta for fragment in piece.tool_calls if (delta := self._calls.take(fragment)) is not None]
            deltas = self._calls.take_turns(deltas)
        self._finish_reason = piece.finish_reason or self._finish_reason
        if piece.last and self._calls:
            deltas += self._calls.finish(is_cut=self._finish_reason in LENGTH_REASONS)
        is_cut = False
        text = "".join(contents)
        if (counted_tokens := self._counted_by_provider(piece)) is not None:
            self._count.tokens = counted_tokens
        elif self._allowance is None or self._allowance.is_ample_for(
            self._count.tokens + _most_tokens(text, deltas, piece.hidden), self._max_tokens
        ):
            # As it is for most pieces: there is nothing to ask for, and nothing to cut.
            if len(text) <= tokens.SLICE_CHARACTERS:
                self._count.add(text, deltas, piece.hidden)
            else:
                await self._count.add_all(text, deltas, piece.hidden)
        else:
            before = self._count.copy()
            await self._count.add_all(text, deltas, piece.hidden)
            allowed_tokens = await self._allowance.cover_output(self._count.tokens, self._max_tokens)
            is_cut = allowed_tokens < self._count.tokens
            if is_cut:
                contents, deltas = self._cut(before, contents, deltas, piece.hidden, allowed_tokens)
        if is_cut or piece.last:
            self.finished = self._finish(piece.usage, is_cut=is_cut)
        if contents or deltas or piece.hidden or self.finished is not None or self._started is not None:
            response = self._response(contents, deltas)
            if piece.refuses:
                response.refusal = True
            await self._conversation.send(response)
        return not is_cut

    def begin_round(self, prompt_tokens: int, max_tokens: int) -> None:
        """The model is asked again within the same answer; both counts are those of all rounds together."""
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens

    async def cut_short(self) -> None:
        """Between two rounds: there is no credit for another, or no room in what the client wants to have."""
        self.finished = self._finish(None, is_cut=True)
        await self._conversation.send(self._response([], []))

    def _counted_by_provider(self, piece: Piece) -> int | None:
        """How much the answer is, where it is whole, paid for, and the provider has said so."""
        if self._started is None or not piece.last or self._allowance is not None or piece.usage is None:
            return None
        return piece.usage.completion_tokens or None

    def _response(self, contents: list[str], deltas: list[ToolCallDelta]) -> ChatResponse:
        response = ChatResponse(contents=contents, prompt_tokens=self._prompt_tokens, output_tokens=self.output_tokens)
        if deltas:
            response.tool_calls.extend(deltas)
        if self._started is not None:
            response.started.CopyFrom(self._started)
            self._started = None
        if self.finished is not None:
            response.finished.CopyFrom(self.finished)
        return response

    def _cut(
        self,
        count: "_OutputCount",
        contents: list[str],
        deltas: list[ToolCallDelta],
        hidden: str,
        allowed_tokens: int,
    ) -> tuple[list[str], list[ToolCallDelta]]:
        """As many whole parts as are paid for."""
        count.add_hidden(hidden)
        kept_contents: list[str] = []
        kept_deltas: list[ToolCallDelta] = []
        self._tokens_at_cut = min(count.tokens, allowed_tokens)
        for content in contents:
            count.add_content(content)
            if count.tokens > allowed_tokens:
                return kept_contents, kept_deltas
            kept_contents.append(content)
            self._tokens_at_cut = count.tokens
        for delta in deltas:
            count.add_delta(delta)
            if count.tokens > allowed_tokens:
                break
            kept_deltas.append(delta)
            self._tokens_at_cut = count.tokens
        return kept_contents, kept_deltas

    def _finish(self, usage: ProviderUsage | None, *, is_cut: bool) -> Finished:
        if is_cut:
            return Finished(finish_reason="length", usage=self._counted_usage(None), usage_source=USAGE_SOURCE_COUNTED)
        if self._finish_reason in _FAILURE_REASONS:
            raise ProviderError("failed in the middle of its answer")
        if not self._calls.all_named:
            raise ProviderError("called a function without naming it")
        counted = self._counted_usage(usage)
        is_told = usage is not None and (counted.prompt_tokens, counted.completion_tokens) == (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
        return Finished(
            finish_reason=canonical_reason(self._finish_reason, has_calls=bool(self._calls)),
            usage=counted,
            usage_source=USAGE_SOURCE_PROVIDER if is_told else USAGE_SOURCE_COUNTED,
        )

    def _counted_usage(self, usage: ProviderUsage | None) -> Usage:
        """What the provider counted, and our own count in place of what it did not say or what cannot be: a prompt is
        never empty, and what was passed on was not nothing."""
        prompt_tokens, completion_tokens, cached_tokens = self._prompt_tokens, self.output_tokens, 0
        if usage is not None:
            prompt_tokens = usage.prompt_tokens or prompt_tokens
            completion_tokens = usage.completion_tokens or completion_tokens
            cached_tokens = min(usage.cached_tokens or 0, prompt_tokens)
        return Usage(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, completion_tokens=completion_tokens)


class _OutputCount:
    """Texts that the model writes beside each other, each counted as one."""

    __slots__ = ("_arguments", "_contents", "_hidden", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self._contents = RunningCount()
        self._hidden = RunningCount()
        self._arguments: dict[int, RunningCount] = {}

    def add(self, content: str, deltas: list[ToolCallDelta], hidden: str) -> None:
        """What one read brought."""
        self.add_content(content)
        self.add_hidden(hidden)
        for delta in deltas:
            self.add_delta(delta)

    async def add_all(self, content: str, deltas: list[ToolCallDelta], hidden: str) -> None:
        """The same where it may be much: others run in between."""
        *slices, last = tokens.slices_of(content)
        for piece in slices:
            self.add_content(piece)
            await asyncio.sleep(0)
        self.add(last, deltas, hidden)

    def add_content(self, content: str) -> None:
        if content:
            self.tokens += self._contents.add(content)

    def add_hidden(self, hidden: str) -> None:
        if hidden:
            self.tokens += self._hidden.add(hidden)

    def add_delta(self, delta: ToolCallDelta) -> None:
        arguments = self._arguments.setdefault(delta.index, RunningCount())
        self.tokens += tokens.count(delta.name) + arguments.add(delta.arguments)

    def copy(self) -> "_OutputCount":
        other = _OutputCount()
        other.tokens, other._contents, other._hidden = self.tokens, self._contents.copy(), self._hidden.copy()
        other._arguments = {index: count.copy() for index, count in self._arguments.items()}
        return other


def canonical_reason(told: str | None, *, has_calls: bool) -> str:
    """Why an answer ended, in a word of ours, whatever the provider said."""
    if told in LENGTH_REASONS:
        return "length"
    if has_calls:
        return "tool_calls"
    return "content_filter" if told == "content_filter" else "stop"


def _most_tokens(text: str, deltas: list[ToolCallDelta], hidden: str) -> int:
    """More than this they cannot be: a token is a byte at least."""
    names_and_arguments = sum(len(delta.name) + len(delta.arguments) for delta in deltas) if deltas else 0
    return _MOST_BYTES_A_CHARACTER * (len(text) + len(hidden) + names_and_arguments)
