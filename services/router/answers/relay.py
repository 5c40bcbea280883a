"""Relays an answer as it streams: counted, normalized, and cut where the credit ends."""

from collections.abc import Callable, Iterable, Sequence

from legato_protos.router.v1.router_pb2 import (
    USAGE_SOURCE_COUNTED,
    USAGE_SOURCE_PROVIDER,
    ChatResponse,
    Citation,
    Finished,
    Started,
    ToolCallDelta,
)
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.packed_pieces import pack_piece
from services.chassis.process import failpoints
from services.router.answers.answer_end import AnswerEnd
from services.router.answers.grants import ChatConversation, TokenAllowance
from services.router.answers.output_count import OutputCount
from services.router.answers.tool_call_check import ToolCallCheck
from services.router.answers.toolcalls import ToolCalls
from services.router.answers.transcript import Transcript
from services.router.answers.usage_check import UsageCheck
from services.router.compiled import pack_read
from services.router.prompts import tokens
from services.router.providers.base import Piece, ProviderError, ProviderUsage
from services.router.providers.matched_stop import stop_sequence_of
from services.router.reasoning.answer_seals import AnswerSeals
from services.router.schema.thoughts import Thought

LENGTH_REASONS = frozenset({"length", "max_tokens", "model_length"})
# A provider that fails in mid-answer may report that as the finish reason.
FAILURE_REASONS = frozenset({"abort", "error", "insufficient_system_resource"})

_MOST_BYTES_A_CHARACTER = 4
# Realistic text has no more characters per token than this.
_MOST_CHARACTERS_A_TOKEN = 8

# Finds what a whole answer cites.
Cite = Callable[[str], list[Citation]]
# Describes the calls made for an answer when it finishes: by what is charged, what the provider reported as far as that
# is plausible, and what it reported.
DescribeCalls = Callable[[Usage, ProviderUsage | None, ProviderUsage | None], Iterable[ModelCall]]


class Relay:
    """Relays on two tracks: `pass_on` awaits what is necessary, and `take` and `take_read`, by which a provider offers
    what it reads in the callback of the read, relay at once what nothing has to be awaited for."""

    def __init__(
        self,
        conversation: ChatConversation,
        *,
        only_one_call: bool = False,
        packs: bool = False,
        cite: Cite | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        """`packs` if the caller takes ordinary pieces in their packed form. The text is kept in the transcript, if
        there is one; with `cite` there always is, so that the last message lists what the answer cites."""
        self._conversation = conversation
        self._cite = cite
        self.transcript = Transcript() if transcript is None and cite is not None else transcript
        self._send_packed = conversation.send_packed if packs else None
        if self._send_packed is not None and self.transcript is not None:
            self._send_packed = _keep_and_send(self.transcript, self._send_packed)
        # Of what the model thinks, in its vendor's terms.
        self._seals: AnswerSeals | None = None
        # What the client has not been given yet; and what came before texts since the last call, which the id of the
        # next has to carry.
        self._thoughts: list[Thought] = []
        self._thoughts_before_call: list[Thought] = []
        # The client was last given reasoning, whose seal comes with what follows.
        self._is_reasoning = False
        # Whether there is nothing but text: no call, no reasoning, no refusal.
        self.is_plain = True
        self._calls = ToolCalls(only_one=only_one_call)
        self._finish_reason: str | None = None
        self._count = OutputCount()
        self._tokens_at_cut: int | None = None
        self._is_own_count = True
        # The model exceeded its output limit.
        self.went_beyond_limit = False
        self.finished: Finished | None = None
        # What the answer cites, by its vendor.
        self._citations: Sequence[Citation] = ()
        self._may_cite = True
        # Refers to what refers to the relay, until that is closed.
        self._describe_calls: DescribeCalls | None = None
        # What the provider reported, as far as it is plausible.
        self.believed_usage: ProviderUsage | None = None

    def begin(
        self,
        started: Started,
        prompt_tokens: int,
        allowance: TokenAllowance,
        longest_tokens: int,
        judge: UsageCheck | None = None,
        *,
        is_covered_whole: bool = False,
        call_check: ToolCallCheck | None = None,
        describe_calls: DescribeCalls | None = None,
        seals: AnswerSeals | None = None,
    ) -> None:
        """Is called before the first piece. `longest_tokens` is by our count, and output beyond it violates the model's
        limit. `is_covered_whole` if the longest answer is already covered; `judge` is None if the usage was already
        checked by the caller; `call_check` gets the tool calls that are sent; `seals` have the answer
        carry what the model thought."""
        self._started: Started | None = started
        self._is_covered_whole = is_covered_whole
        self._allowance = allowance
        self._judge = judge
        self._call_check = call_check
        self._describe_calls = describe_calls
        if seals is not None:
            self._seals = seals
            self._calls.seal_ids(seals.seal_id)
        self._limit(prompt_tokens, started.max_tokens, longest_tokens)

    def _limit(self, prompt_tokens: int, max_tokens: int, longest_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._longest_tokens = longest_tokens
        self._allowance.limit(max_tokens, longest_tokens)

    @property
    def output_tokens(self) -> int:
        # A model applies its limit with its own tokenizer. The client never pays for more than the limit, even where
        # our count replaces the model's.
        counted_tokens = self._count.tokens if self._tokens_at_cut is None else self._tokens_at_cut
        return min(counted_tokens, self._max_tokens)

    def read_end(self) -> AnswerEnd:
        """Returns how the answer ended, as far as it was relayed."""
        return AnswerEnd(self.finished, self.believed_usage, self.comparable_tokens, self.went_beyond_limit)

    @property
    def comparable_tokens(self) -> int | None:
        """Returns our count of an answer if it can be compared with the model's: it is our own, of all that the model
        wrote, and without reasoning, which a model may count or not."""
        return self._count.tokens if self._is_own_count and not self._count.has_hidden else None

    def take(self, piece: Piece) -> bool:
        """Relays a piece if nothing has to be awaited for it; otherwise returns False, and nothing has happened.

        So it is not the last, there is room for it, its tokens are covered whatever their number, and it is counted in
        an instant."""
        if piece.last or not self._conversation.has_room:
            return False
        contents, hidden = piece.contents, piece.hidden
        text = contents[0] if len(contents) == 1 else "".join(contents)
        characters = len(text)
        # Each token is at least one byte.
        most_bytes = characters if text.isascii() else _MOST_BYTES_A_CHARACTER * characters
        if hidden or piece.tool_calls:
            others = len(hidden) + self._calls.characters_held_back
            others += sum(len(call.name or "") + len(call.arguments or "") for call in piece.tool_calls)
            self.is_plain = False
            characters += others
            most_bytes += _MOST_BYTES_A_CHARACTER * others
        count = self._count
        if characters > tokens.SLICE_CHARACTERS or count.tokens + most_bytes > self._allowance.covered_tokens:
            return False
        if failpoints.watched:
            failpoints.hit("router.passed_on")
        self._finish_reason = piece.finish_reason or self._finish_reason
        is_plain = contents and not (piece.tool_calls or hidden or piece.refuses)
        if is_plain and self._send_packed is not None and not (self._is_reasoning or piece.thoughts_before):
            count.tokens += count.contents.add(text)
            output_tokens = min(count.tokens, self._max_tokens)
            self._send_packed(pack_piece(self._prompt_tokens, output_tokens, contents))
            return True
        self._take_thoughts(piece.thoughts_before)
        deltas = self._deltas_of(piece) if piece.tool_calls else []
        count.add(text, deltas, hidden)
        if contents or deltas or hidden:
            self._conversation.send_soon(self._response(contents, deltas, hidden, refuses=piece.refuses))
        return True

    def take_read(self, read: bytes) -> int:
        """Relays a read of nothing but texts, as most are, without parsing it, under the same conditions. Returns the
        bytes of its body; 0 if it has to be parsed, and nothing has happened.

        That is compiled: with cold caches, Python needs several times as long for it."""
        send_packed = self._send_packed
        if send_packed is None or self._is_reasoning or not self._conversation.has_room:
            return 0
        count = self._count
        packed = pack_read(
            read, count.contents, count.tokens, self._allowance.covered_tokens, self._prompt_tokens, self._max_tokens
        )
        if packed is None:
            return 0
        if failpoints.watched:
            failpoints.hit("router.passed_on")
        payload, count.tokens, body_bytes = packed
        send_packed(payload)
        return body_bytes

    async def pass_on(self, piece: Piece) -> bool:
        """Relays one piece and returns False if the answer was cut, so that nothing more need be read."""
        contents = piece.contents
        self._finish_reason = piece.finish_reason or self._finish_reason
        if piece.last and self._finish_reason in FAILURE_REASONS:
            # Before anything of the piece is counted, since nothing of it is sent.
            raise ProviderError("failed in the middle of its answer")
        if piece.hidden or piece.tool_calls:
            self.is_plain = False
        self._take_thoughts(piece.thoughts_before)
        deltas = self._deltas_of(piece) if piece.tool_calls else []
        if piece.last and self._calls:
            deltas += self._calls.finish(is_cut=self._finish_reason in LENGTH_REASONS)
        is_cut = False
        text = "".join(contents)
        most_tokens = self._count.tokens + most_tokens_in(text, deltas, piece.hidden)
        reported_tokens = self._counted_by_provider(piece, text) if most_tokens <= self._longest_tokens else None
        if reported_tokens is not None:
            self._count.replace_by(reported_tokens)
            self._is_own_count = False
        elif most_tokens <= self._allowance.covered_tokens:
            # The common case: nothing to request and nothing to cut.
            self._count.add(text, deltas, piece.hidden)
        else:
            before = self._count.copy()
            self._count.add(text, deltas, piece.hidden)
            allowed_tokens = await self._allowed_tokens()
            is_cut = allowed_tokens < self._count.tokens
            if is_cut:
                contents, deltas = await self._cut(before, contents, deltas, piece.hidden, allowed_tokens)
        self._thoughts += piece.thoughts
        # Of a piece that is cut, nothing is sent that may not be paid for.
        reasoning = "" if is_cut else piece.hidden
        if is_cut or piece.last:
            self._citations = () if is_cut else piece.citations
            self.finished = self._finish(piece.usage, is_cut=is_cut)
        is_ordinary = self.finished is None and self._started is None
        if is_ordinary and not (contents or deltas or piece.hidden):
            return not is_cut
        response = self._response(contents, deltas, reasoning, refuses=piece.refuses)
        if is_ordinary and self._conversation.has_room:
            self._conversation.send_soon(response)
        else:
            await self._conversation.send(response)
        return not is_cut

    def begin_round(self, prompt_tokens: int, max_tokens: int, longest_tokens: int) -> None:
        """Starts another round of the same answer. The prompt is that of all rounds; the limits are of this one. The
        usage that is reported of it was checked by the caller."""
        self._finish_reason = self._judge = None
        self._limit(prompt_tokens, self.output_tokens + max_tokens, self._count.tokens + longest_tokens)

    async def cut_short(self) -> None:
        """Ends the answer between two rounds, when the credit or the client's output limit is used up."""
        self.finished = self._finish(None, is_cut=True)
        await self._conversation.send(self._response([], []))

    def close(self) -> None:
        """Lets go of what refers back to the relay, once its chat has ended."""
        self._describe_calls = None

    def _take_thoughts(self, thoughts: Sequence[Thought]) -> None:
        """Takes what the model thought before its texts: the client is given it with these, and the id of the next call
        carries it."""
        if thoughts:
            self._thoughts += thoughts
            self._thoughts_before_call += thoughts

    def _deltas_of(self, piece: Piece) -> list[ToolCallDelta]:
        for fragment in piece.tool_calls:
            self._thoughts += fragment.thoughts
            if self._thoughts_before_call and (fragment.name or fragment.call_id):
                fragment.thoughts = (*self._thoughts_before_call, *fragment.thoughts)
                self._thoughts_before_call = []
        deltas = [delta for fragment in piece.tool_calls if (delta := self._calls.add_fragment(fragment)) is not None]
        return self._calls.take_turns(deltas)

    async def _allowed_tokens(self) -> int:
        """Returns how many of the counted tokens may be passed on: all that are covered, and from max_tokens on as many
        as a model may have written that respects it by its own count."""
        self.went_beyond_limit = self._count.tokens > self._longest_tokens
        most_tokens = min(self._count.tokens, self._longest_tokens)
        return await self._allowance.cover_output(most_tokens, self._max_tokens)

    def _counted_by_provider(self, piece: Piece, text: str) -> int | None:
        """Returns the provider's output count for a complete, covered answer if it is plausible."""
        if self._started is None or not piece.last or not self._is_covered_whole or piece.usage is None:
            return None
        reported_tokens = piece.usage.completion_tokens or 0
        least_tokens = len(text) // _MOST_CHARACTERS_A_TOKEN
        if self._judge is not None and not self._judge.believes_output(reported_tokens, least_tokens):
            return None
        return reported_tokens or None

    def _response(
        self, contents: list[str], deltas: list[ToolCallDelta], reasoning: str = "", *, refuses: bool = False
    ) -> ChatResponse:
        response = ChatResponse(contents=contents, prompt_tokens=self._prompt_tokens, output_tokens=self.output_tokens)
        if deltas:
            response.tool_calls.extend(deltas)
            if self._call_check is not None:
                self._call_check.add(deltas)
        if refuses:
            response.refusal = True
            self.is_plain = False
            # It has no citations: their positions would refer to text that is not an answer.
            self._may_cite = False
        if self._started is not None:
            response.started.CopyFrom(self._started)
            self._started = None
        if self.transcript is not None:
            self.transcript.add(contents)
        if self.finished is not None:
            response.finished.CopyFrom(self.finished)
            if self._may_cite:
                self._add_citations(response.finished)
        if self._seals is not None and self._seals.is_shown:
            self._add_thoughts(response, reasoning, self._seals)
        return response

    def _add_citations(self, finished: Finished) -> None:
        if self._cite is not None and self.transcript is not None:
            finished.citations.extend(self._cite(self.transcript.text))
        finished.citations.extend(self._citations)

    def _add_thoughts(self, response: ChatResponse, reasoning: str, seals: AnswerSeals) -> None:
        """Adds to the response what the model thinks: as text at once, and as sealed data with what follows it."""
        if reasoning:
            response.reasoning = reasoning
        is_followed = bool(response.contents or response.tool_calls or self.finished)
        if is_followed and self._thoughts:
            response.reasoning_data = seals.seal_data(self._thoughts)
            self._thoughts = []
        self._is_reasoning = not is_followed and (bool(reasoning) or self._is_reasoning)

    async def _cut(
        self,
        count: OutputCount,
        contents: list[str],
        deltas: list[ToolCallDelta],
        hidden: str,
        allowed_tokens: int,
    ) -> tuple[list[str], list[ToolCallDelta]]:
        """Keeps the parts that fit the allowed tokens, and the beginning of a long part that does not."""
        count.add_hidden(hidden)
        kept_contents: list[str] = []
        kept_deltas: list[ToolCallDelta] = []
        self._tokens_at_cut = min(count.tokens, allowed_tokens)
        for content in contents:
            kept = await count.add_within(count.contents, content, allowed_tokens)
            if kept:
                kept_contents.append(kept)
                self._tokens_at_cut = count.tokens
            if len(kept) < len(content):
                return kept_contents, kept_deltas
        for delta in deltas:
            if count.tokens + tokens.count(delta.name) > allowed_tokens:
                break
            count.add_name(delta.name)
            kept = await count.add_within(count.arguments_of(delta.index), delta.arguments, allowed_tokens)
            if delta.name or kept:
                kept_deltas.append(ToolCallDelta(index=delta.index, id=delta.id, name=delta.name, arguments=kept))
                self._tokens_at_cut = count.tokens
            if len(kept) < len(delta.arguments):
                break
        return kept_contents, kept_deltas

    def _finish(self, reported: ProviderUsage | None, *, is_cut: bool) -> Finished:
        finished = self._cut_off() if is_cut else self._complete(reported)
        if self._describe_calls is not None:
            finished.calls.extend(self._describe_calls(finished.usage, self.believed_usage, reported))
        return finished

    def _cut_off(self) -> Finished:
        return Finished(finish_reason="length", usage=self._counted_usage(None), usage_source=USAGE_SOURCE_COUNTED)

    def _complete(self, usage: ProviderUsage | None) -> Finished:
        if not self._calls.all_named:
            raise ProviderError("called a function without naming it")
        if usage is not None and self._judge is not None:
            usage = self._judge.believed(usage, self._count.tokens)
        self.believed_usage = usage
        counted = self._counted_usage(usage)
        is_reported = usage is not None and (counted.prompt_tokens, counted.completion_tokens) == (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
        return Finished(
            finish_reason=canonical_reason(self._finish_reason, has_calls=bool(self._calls)),
            stop_sequence=stop_sequence_of(self._finish_reason),
            usage=counted,
            usage_source=USAGE_SOURCE_PROVIDER if is_reported else USAGE_SOURCE_COUNTED,
        )

    def _counted_usage(self, usage: ProviderUsage | None) -> Usage:
        """Returns the provider's usage, with our own count where the provider's is missing or zero."""
        prompt_tokens, completion_tokens = self._prompt_tokens, self.output_tokens
        if usage is None:
            return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        return usage.charged(prompt_tokens, completion_tokens)


def _keep_and_send(transcript: Transcript, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
    keep = transcript.add_packed

    def keep_and_send(packed: bytes) -> None:
        keep(packed)
        send(packed)

    return keep_and_send


def canonical_reason(reported: str | None, *, has_calls: bool) -> str:
    """Maps a provider's finish reason to OpenAI's."""
    if reported in LENGTH_REASONS:
        return "length"
    if has_calls:
        return "tool_calls"
    return "content_filter" if reported == "content_filter" else "stop"


def most_tokens_in(text: str, deltas: list[ToolCallDelta], hidden: str) -> int:
    """Returns an upper bound of the tokens: each token is at least one byte."""
    if text.isascii() and not (deltas or hidden):
        return len(text)
    names_and_arguments = sum(len(delta.name) + len(delta.arguments) for delta in deltas)
    return _MOST_BYTES_A_CHARACTER * (len(text) + len(hidden) + names_and_arguments)
