"""A chat whose model may search. Its answer comes in rounds; the client sees one.

A round ends with calls of our function, which are answered here, and the model goes on. Calls are counted and never
shown; texts go to the client as they come. Usage is the sum of the rounds.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from protos.router.v1.router_pb2 import ChatOpen, Finished
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.process import failpoints
from services.router.answers.grants import TokenAllowance
from services.router.answers.plausible import UsageCheck
from services.router.answers.relay import LENGTH_REASONS, Relay, canonical_reason
from services.router.answers.toolcalls import ToolCalls
from services.router.answers.upstream import Upstream
from services.router.grounding.search_tool import SearchCall, SearchTool
from services.router.prompts import tokens
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Prompt
from services.router.providers.answer import UNREADABLE
from services.router.providers.base import Piece, ProviderUsage
from services.router.providers.translation.usage import as_count

# Between what the model said before it searched and what it says after.
BETWEEN_TEXTS: Final = "\n\n"
# Of the arguments of a search, which are a few words.
LONGEST_QUERY_CHARACTERS: Final = 64 * 1024

# There is no credit for another round, or no room for what was found.
_NO_MORE_ROUNDS: Final = frozenset({Reason.CREDITS_EXHAUSTED, Reason.CONTEXT_EXCEEDED})

OpenUpstream = Callable[[ChatOpen, Prompt], Awaitable[Upstream]]


@dataclass(frozen=True, slots=True)
class RoundDependencies:
    """Of one chat, what its rounds have in common."""

    chat: ChatOpen
    allowance: TokenAllowance
    tool: SearchTool
    # After this many the model has to answer.
    searches_most: int
    open_upstream: OpenUpstream


class Rounds:
    def __init__(self, parts: RoundDependencies, prompt: Prompt, relay: Relay) -> None:
        self._parts = parts
        self._prompt = prompt
        self._relay = relay
        self._round = _Round()
        self._searches_left = parts.searches_most
        # Of the prompts of all rounds together.
        self._prompt_tokens = prompt.tokens
        self._usages: list[ProviderUsage | None] = []
        # Of the round that runs, and how much output there was before it.
        self._judge: UsageCheck | None = None
        self._output_tokens_before = 0
        self._has_spoken = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete, and not waiting for a search."""
        return self._is_over

    async def pass_on(self, upstream: Upstream) -> None:
        """One round, inside of its upstream."""
        self._output_tokens_before = output_tokens_before = self._relay.output_tokens
        self._judge = upstream.judge(self._prompt.tokens)
        async with aclosing(upstream.rest) as rest:
            goes_on = await self._pass_on(upstream.first)
            while goes_on and (piece := await anext(rest, None)) is not None:
                failpoints.hit("router.passed_on")
                goes_on = await self._pass_on(piece)
        upstream.went_beyond_limit = self._relay.went_beyond_limit
        upstream.finished = self._round.finished(self._prompt.tokens, self._relay.output_tokens - output_tokens_before)

    async def go_on(self) -> None:
        """All that follow the first."""
        while not self._is_over:
            await self._search()
            upstream = await self._open()
            if upstream is None:
                return
            with upstream:
                self._relay.begin_round(self._prompt_tokens, self._relay.output_tokens + upstream.max_tokens)
                await self.pass_on(upstream)

    async def _pass_on(self, piece: Piece) -> bool:
        shown = self._round.record(piece)
        if shown.contents and self._has_spoken and not self._round.has_spoken:
            shown.contents.insert(0, BETWEEN_TEXTS)
        self._round.has_spoken |= bool(shown.contents)
        if piece.last:
            self._round.usage = self._believed(piece.usage, shown)
            self._usages.append(self._round.usage)
            if not self._round.asks_for_search or not self._searches_left:
                self._is_over = True
                shown.last, shown.usage, shown.finish_reason = True, _sum(self._usages), self._round.finish_reason
        goes_on = await self._relay.pass_on(shown)
        self._is_over = self._is_over or not goes_on
        return goes_on and not piece.last

    def _believed(self, usage: ProviderUsage | None, shown: Piece) -> ProviderUsage | None:
        if usage is None or self._judge is None:
            return usage
        # This piece is not counted yet; it has hardly more tokens than characters.
        uncounted_characters = sum(map(len, shown.contents)) + len(shown.hidden)
        counted_tokens = self._relay.output_tokens - self._output_tokens_before
        return self._judge.believed(usage, counted_tokens + uncounted_characters)

    async def _search(self) -> None:
        calls = self._round.calls
        self._has_spoken = self._has_spoken or self._round.has_spoken
        answers = await self._parts.tool.answer(calls)
        self._searches_left = self._searches_left - 1 if answers.may_go_on else 0
        said = "".join(self._round.texts)
        self._prompt = _continued(self._prompt, said, calls, answers.texts, may_search=self._searches_left > 0)
        self._parts.allowance.begin_round(self._prompt_tokens, self._relay.output_tokens)
        self._prompt_tokens += self._prompt.tokens
        self._round = _Round()

    async def _open(self) -> Upstream | None:
        """None: the answer has ended, for want of credit or because it is as long as the client allows."""
        chat = ChatOpen()
        chat.CopyFrom(self._parts.chat)
        if chat.HasField("max_tokens"):
            left_tokens = chat.max_tokens - self._used_output_tokens()
            if left_tokens < 1:
                await self._end_unread()
                return None
            chat.max_tokens = left_tokens
        try:
            return await self._parts.open_upstream(chat, self._prompt)
        except LegatoError as error:
            if error.reason not in _NO_MORE_ROUNDS:
                raise
            # The rounds before were asked for, and are paid for, whether anything of them was seen or not.
            await self._end_unread()
            return None

    async def _end_unread(self) -> None:
        self._parts.tool.take_back()
        await self._relay.cut_short()

    def _used_output_tokens(self) -> int:
        """Thoughts that a provider keeps to itself are in its own count alone."""
        told = _sum(self._usages)
        return max(self._relay.output_tokens, (told.completion_tokens if told is not None else None) or 0)


class _Round:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.has_spoken = False
        self.usage: ProviderUsage | None = None
        self._finish_reason: str | None = None
        self._tool_calls = ToolCalls()
        self._calls: dict[int, SearchCall] = {}

    @property
    def calls(self) -> list[SearchCall]:
        return list(self._calls.values())

    @property
    def asks_for_search(self) -> bool:
        # A call that was cut off in the middle is none.
        return bool(self._calls) and self._tool_calls.all_named and self._finish_reason not in LENGTH_REASONS

    @property
    def finish_reason(self) -> str | None:
        """For the client, who knows of no calls."""
        return "stop" if self._calls and self._finish_reason not in LENGTH_REASONS else self._finish_reason

    def finished(self, prompt_tokens: int, output_tokens: int) -> Finished:
        """For whoever watches the models: how this round ended. The counts are ours, for want of the provider's."""
        if self.usage is not None:
            prompt_tokens = self.usage.prompt_tokens or prompt_tokens
            output_tokens = self.usage.completion_tokens or output_tokens
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=output_tokens)
        return Finished(finish_reason=canonical_reason(self._finish_reason, has_calls=bool(self._calls)), usage=usage)

    def record(self, piece: Piece) -> Piece:
        """What of it is passed on: the texts. Calls are counted, as thoughts are."""
        hidden = piece.hidden
        for fragment in piece.tool_calls:
            delta = self._tool_calls.add_fragment(fragment)
            if delta is not None:
                call = self._calls.setdefault(delta.index, SearchCall(delta.id, delta.name))
                if len(call.arguments) <= LONGEST_QUERY_CHARACTERS:
                    # Of a longer one nothing can be read, and it is not made longer still.
                    call.arguments += delta.arguments
                hidden += delta.name + delta.arguments
        self.texts += piece.contents
        self._finish_reason = piece.finish_reason or self._finish_reason
        return Piece(contents=list(piece.contents), refuses=piece.refuses, hidden=hidden)


def _sum(usages: list[ProviderUsage | None]) -> ProviderUsage | None:
    """What is not known of one round is not known of all."""
    told = [usage for usage in usages if usage is not None]
    if len(told) < len(usages):
        return None
    return ProviderUsage(
        _sum_of([usage.prompt_tokens for usage in told]),
        _sum_of([usage.completion_tokens for usage in told]),
        as_count(sum(usage.cached_tokens or 0 for usage in told)),
    )


def _sum_of(told: list[int | None]) -> int | None:
    known = [count for count in told if count is not None]
    return as_count(sum(known)) if len(known) == len(told) else None


def _continued(prompt: Prompt, said: str, calls: list[SearchCall], answers: list[str], *, may_search: bool) -> Prompt:
    """With the calls and their answers at the end of the conversation."""
    asking: dict[str, Any] = {
        "role": "assistant",
        "content": said or None,
        "tool_calls": [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": _as_object(call.arguments)},
            }
            for call in calls
        ],
    }
    answering = [
        {"role": "tool", "tool_call_id": call.call_id, "content": answer}
        for call, answer in zip(calls, answers, strict=True)
    ]
    added = [msgspec.json.encode(message) for message in (asking, *answering)]
    texts = [said, *answers, *(call.name + call.arguments for call in calls)]
    return replace(
        prompt,
        messages_json=prompt.messages_json.rstrip()[:-1] + b"," + b",".join(added) + b"]",
        tokens=prompt.tokens + sum(map(tokens.count, texts)) + TOKENS_PER_MESSAGE * len(added),
        # Offered all the same, since the conversation has calls of it.
        offered_tool_choice_json=b"" if may_search else b'"none"',
    )


def _as_object(arguments: str) -> str:
    """Providers take back only what is an object."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except UNREADABLE:
        return "{}"
    return arguments
