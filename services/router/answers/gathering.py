"""Gathers a streamed answer of which nothing is delivered before all of it is here.

So an answer that is cut, stalls or breaks can still come from another model. Credit grows with it, as in a stream.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from services.chassis.packed_pieces import unpack_texts
from services.router.answers.grants import TokenAllowance
from services.router.answers.output_count import OutputCount
from services.router.answers.relay import FAILURE_REASONS, most_tokens_in
from services.router.answers.toolcalls import ToolCalls
from services.router.compiled import pack_read
from services.router.prompts import tokens
from services.router.providers.answer import LARGEST_PIECE_CHARACTERS, parts_of
from services.router.providers.base import Piece, ProviderError
from services.router.providers.http.answer_buffer import AnswerBuffer, BufferBudget
from services.router.providers.http.http_provider import LARGEST_ANSWER_BYTES
from services.router.schema.thoughts import Thought
from services.router.schema.tools import ToolCallFragment

# Memory of a text beside its characters.
_TEXT_BYTES: Final = 64


class Gathering:
    """Gathers one answer. As its sink it takes what nothing has to be awaited for; the rest is read by `gather`."""

    def __init__(self, allowance: TokenAllowance, budget: BufferBudget, max_tokens: int, longest_tokens: int) -> None:
        """`longest_tokens` is by our count, and output beyond it violates the model's limit."""
        self._allowance = allowance
        self._buffer = AnswerBuffer(budget)
        before_tokens = allowance.output_tokens_before
        self._max_tokens = before_tokens + max_tokens
        self._longest_tokens = before_tokens + longest_tokens
        allowance.limit(self._max_tokens, self._longest_tokens)
        self._count = OutputCount(before_tokens)
        # Texts as they are, and reads that were packed.
        self._contents: list[str | bytes] = []
        self._has_packed = False
        self._refusal: list[str] = []
        self._hidden: list[str] = []
        # Sent to the client before the texts.
        self._thoughts: list[Thought] = []
        self._fragments: list[ToolCallFragment] = []
        self._finish_reason: str | None = None
        self._held_bytes = 0
        # The credit or the model's limit ended before the answer did.
        self.is_cut = False

    def take(self, piece: Piece) -> bool:
        text, hidden = "".join(piece.contents), piece.hidden + _text_of(piece.tool_calls)
        characters = len(text) + len(hidden)
        if piece.last or not self._is_covered(text, hidden) or characters > tokens.SLICE_CHARACTERS:
            return False
        self._count.add(text, [], hidden)
        self._keep(piece, characters)
        return True

    def take_read(self, read: bytes) -> int:
        count = self._count
        packed = pack_read(read, count.contents, count.tokens, self._allowance.covered_tokens, 0, self._max_tokens)
        if packed is None:
            return 0
        payload, count.tokens, body_bytes = packed
        self._contents.append(payload)
        self._has_packed = True
        self._hold(len(payload))
        return body_bytes

    def _is_covered(self, text: str, hidden: str) -> bool:
        return self._count.tokens + most_tokens_in(text, [], hidden) <= self._allowance.covered_tokens

    async def gather(self, first: Piece, rest: AsyncGenerator[Piece, None]) -> deque[Piece]:
        """Reads to the end of the answer and returns it in as few pieces as possible. Raises ProviderError."""
        if first.last and self._passes_as_it_is(first):
            return deque((first,))
        try:
            piece = first
            while await self._add(piece) and not piece.last:
                piece = await anext(rest)
            if self.is_cut:
                await rest.aclose()
                return self._pieces(Piece(finish_reason="length", last=True))
            if self._finish_reason in FAILURE_REASONS or not self._are_calls_named():
                raise ProviderError("failed in the middle of its answer")
            return self._pieces(piece)
        except BaseException:
            # Closes the provider's connection.
            await rest.aclose()
            raise
        finally:
            self._buffer.release()

    def _passes_as_it_is(self, whole: Piece) -> bool:
        """Returns whether an answer that came in one piece is complete, covered and small enough to be passed on."""
        if self._held_bytes or whole.tool_calls or whole.finish_reason in FAILURE_REASONS:
            return False
        text = "".join(whole.contents)
        return len(text) + len(whole.hidden) <= LARGEST_PIECE_CHARACTERS and self._is_covered(text, whole.hidden)

    async def _add(self, piece: Piece) -> bool:
        """Adds one piece; returns False if the rest cannot be paid for, or is more than the model was allowed."""
        text, hidden = "".join(piece.contents), piece.hidden + _text_of(piece.tool_calls)
        count = self._count
        is_covered = self._is_covered(text, hidden)
        self._keep(piece, len(text) + len(hidden))
        if not (is_covered and piece.last):
            count.add(text, [], hidden)
        if not is_covered:
            wanted_tokens = min(count.tokens, self._longest_tokens)
            covered_tokens = await self._allowance.cover_output(wanted_tokens, self._max_tokens)
            self.is_cut = covered_tokens < count.tokens
        return not self.is_cut

    def _are_calls_named(self) -> bool:
        if not self._fragments:
            return True
        calls = ToolCalls()
        for fragment in self._fragments:
            calls.add_fragment(fragment)
        return calls.all_named

    def _keep(self, piece: Piece, characters: int) -> None:
        (self._refusal if piece.refuses else self._contents).extend(piece.contents)
        if piece.hidden:
            self._hidden.append(piece.hidden)
        self._thoughts += piece.thoughts_before
        self._fragments += piece.tool_calls
        self._finish_reason = piece.finish_reason or self._finish_reason
        self._hold(characters)

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes + _TEXT_BYTES
        if self._held_bytes > LARGEST_ANSWER_BYTES:
            raise ProviderError("sent an endless answer")
        self._buffer.reserve(self._held_bytes)

    def _pieces(self, last: Piece) -> deque[Piece]:
        texts: Iterable[Any] = _texts(self._contents) if self._has_packed else self._contents
        text, refusal, hidden = "".join(texts), "".join(self._refusal), "".join(self._hidden)
        fragments = self._fragments
        characters = len(text) + len(refusal) + len(hidden) + len(_text_of(fragments))
        if characters <= LARGEST_PIECE_CHARACTERS and not (text and refusal):
            contents = [text or refusal] if text or refusal else []
            pieces = [Piece(contents, bool(refusal), fragments, hidden)]
        else:
            pieces = [Piece(hidden=part) for part in parts_of(hidden)]
            pieces += [Piece([part]) for part in parts_of(text)]
            pieces += [Piece([part], refuses=True) for part in parts_of(refusal)]
            pieces += [Piece(tool_calls=[fragment]) for fragment in fragments]
        pieces[0].thoughts_before = self._thoughts
        pieces[-1].finish(last.finish_reason if self.is_cut else self._finish_reason, last.usage, last.thoughts)
        pieces[-1].citations = last.citations
        return deque(pieces)


class GatheredAnswer:
    """The pieces of a gathered answer behind its first, and the response that they came from, which is read to its end
    only when the answer has been passed on."""

    def __init__(self, pieces: deque[Piece], response: AsyncGenerator[Piece, None]) -> None:
        self._pieces = pieces
        self._response = response

    def __aiter__(self) -> "GatheredAnswer":
        return self

    async def __anext__(self) -> Piece:
        return self._pieces.popleft() if self._pieces else await anext(self._response)

    async def aclose(self) -> None:
        await self._response.aclose()


def _texts(contents: list[str | bytes]) -> Iterator[str]:
    for is_packed, group in groupby(contents, lambda text: isinstance(text, bytes)):
        texts: Iterable[Any] = list(group)
        yield from unpack_texts(texts) if is_packed else texts


def _text_of(fragments: list[ToolCallFragment]) -> str:
    return "".join((fragment.name or "") + (fragment.arguments or "") for fragment in fragments)
