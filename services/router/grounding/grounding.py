"""Adds context to a chat without tools: notes, passages of documents, and web search."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import unavailable
from services.chassis.telemetry.log import Log
from services.router.answers.grants import ChatConversation, TokenAllowance
from services.router.answers.relay import Relay
from services.router.grounding.attachments import Attachments
from services.router.grounding.blocks import note_tokens, notes_block, passage_tokens, passages_block
from services.router.grounding.citations import CitingConversation, Source, Sources
from services.router.grounding.holdings import NOTHING, Holdings
from services.router.grounding.notes import Notes
from services.router.grounding.ranking import question_words
from services.router.grounding.records import Note, Passage
from services.router.prompts import tokens
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Prompt, insert_guidance
from services.router.routing.routes import Target

if TYPE_CHECKING:
    from services.router.grounding.rounds import OpenUpstream, Rounds
    from services.router.grounding.search import Search
    from services.router.grounding.search_tool import SearchTool

# Timeout of the lookup; the chat continues without it.
LOOK_UP_WITHIN_S: Final = 2.0

# The share of the free context window that grounding may use: one part in this many.
ROOM_PART: Final = 4

BETWEEN_BLOCKS: Final = "\n\n"

# Search is not offered with less free context than this.
SEARCH_ROOM_TOKENS: Final = 2000


@dataclass(frozen=True, slots=True)
class Budgets:
    """Token budgets."""

    notes: int
    passages: int


@dataclass(frozen=True, slots=True)
class Library:
    """The stores of accounts' notes and documents; None if not configured."""

    notes: Notes | None
    attachments: Attachments | None
    holdings: Holdings


@dataclass(frozen=True, slots=True, repr=False)
class FoundContext:
    """The notes and passages that a chat is given, in the order of the prompt."""

    notes: Sequence[Note]
    passages: Sequence[tuple[Source, Passage]]
    sources: Sources
    # The block of each kind that there is.
    blocks: Sequence[str]

    @property
    def text(self) -> str:
        return BETWEEN_BLOCKS.join(self.blocks)

    def insert_into(self, prompt: Prompt) -> Prompt:
        return insert_guidance(prompt, self.text) if self.blocks else prompt


@dataclass(frozen=True, slots=True, repr=False)
class GroundingPreview:
    """The notes and passages that a chat would be given, each with its tokens."""

    notes: Sequence[tuple[Note, int]]
    passages: Sequence[tuple[Source, Passage, int]]
    text: str
    offers_search: bool
    # Of the prompt, by what they are for.
    notes_tokens: int
    passages_tokens: int
    search_tokens: int


@dataclass(frozen=True, slots=True, repr=False)
class Grounded:
    """A chat with its added context."""

    prompt: Prompt
    # Adds citations to the last message.
    conversation: ChatConversation
    # None: the model cannot search.
    tool: "SearchTool | None" = None
    searches_most: int = 0

    def without_search(self) -> "Grounded":
        from services.router.grounding.search_tool import TOOLS_TOKENS

        tokens_without = self.prompt.tokens - TOOLS_TOKENS
        return replace(self, prompt=replace(self.prompt, offered_tools=None, tokens=tokens_without))

    def rounds(
        self, chat: ChatOpen, allowance: TokenAllowance, relay: Relay, open_upstream: "OpenUpstream"
    ) -> "Rounds":
        from services.router.grounding.rounds import RoundDependencies, Rounds

        if self.tool is None:
            raise ValueError("there are rounds only where the model can search")
        return Rounds(
            RoundDependencies(chat, allowance, self.tool, self.searches_most, open_upstream), self.prompt, relay
        )


class Grounding:
    def __init__(
        self, library: Library | None, search: "Search | None", searches_most: int, budgets: Budgets, log: Log
    ) -> None:
        self._library = library
        self._search = search
        self._searches_most = searches_most
        self._budgets = budgets
        self._log = log

    async def ground(
        self, chat: ChatOpen, prompt: Prompt, targets: Sequence[Target], conversation: ChatConversation
    ) -> Grounded:
        """Adds context to the prompt; `targets` are the models that may answer."""
        sources = Sources()
        window_tokens = min(target.context_tokens for target in targets)
        if self._library is not None and (chat.memory or chat.attachments):
            findings = await self._look_up(self._library, chat, prompt, window_tokens)
            prompt, sources = findings.insert_into(prompt), findings.sources
        room_tokens = window_tokens - prompt.tokens
        if self._search is not None and _can_search(chat, targets, room_tokens):
            return self._offering_search(chat, prompt, conversation, sources, self._search, room_tokens)
        return Grounded(prompt, CitingConversation(conversation, sources) if sources else conversation)

    async def preview(self, chat: ChatOpen, prompt: Prompt, targets: Sequence[Target]) -> GroundingPreview:
        """Returns what `ground` would add to the prompt. Raises where a chat would be answered without it."""
        findings = _nothing_found()
        window_tokens = min(target.context_tokens for target in targets)
        if self._library is not None and (chat.memory or chat.attachments):
            try:
                async with asyncio.timeout(LOOK_UP_WITHIN_S):
                    findings = await self._find(self._library, chat, prompt, window_tokens)
            except Exception as error:
                self._log.failure("grounding.failed", error)
                raise unavailable("The store of notes and documents") from None
        grounded = findings.insert_into(prompt)
        added_tokens = grounded.tokens - prompt.tokens
        notes_tokens = tokens.count(findings.blocks[0]) if findings.notes and findings.passages else added_tokens
        room_tokens = window_tokens - grounded.tokens
        offers_search = self._search is not None and _can_search(chat, targets, room_tokens)
        return GroundingPreview(
            notes=[(note, note_tokens(note)) for note in findings.notes],
            passages=[(source, passage, passage_tokens(passage)) for source, passage in findings.passages],
            text=findings.text,
            offers_search=offers_search,
            notes_tokens=notes_tokens if findings.notes else 0,
            passages_tokens=added_tokens - (notes_tokens if findings.notes else 0),
            search_tokens=_search_tokens() if offers_search else 0,
        )

    def _offering_search(
        self,
        chat: ChatOpen,
        prompt: Prompt,
        conversation: ChatConversation,
        sources: Sources,
        search: "Search",
        room_tokens: int,
    ) -> Grounded:
        from services.router.grounding.search_tool import TOOLS, TOOLS_TOKENS, SearchTool

        return Grounded(
            replace(prompt, offered_tools=TOOLS, tokens=prompt.tokens + TOOLS_TOKENS),
            CitingConversation(conversation, sources),
            SearchTool(search, sources, room_tokens // 2, lambda why: self._log_failure(chat, why)),
            self._searches_most,
        )

    def _log_failure(self, chat: ChatOpen, why: str) -> None:
        self._log.warning("search.failed", request_id=chat.request_id, reason=why)

    async def _look_up(self, library: Library, chat: ChatOpen, prompt: Prompt, window_tokens: int) -> FoundContext:
        """Returns what is found; nothing if the lookup fails."""
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                return await self._find(library, chat, prompt, window_tokens)
        except Exception as error:
            # A failed lookup is logged, and the chat is answered without it.
            self._log.failure("grounding.failed", error, request_id=chat.request_id)
            return _nothing_found()

    async def _find(self, library: Library, chat: ChatOpen, prompt: Prompt, window_tokens: int) -> FoundContext:
        holding = await library.holdings.of(chat.account_id)
        if holding == NOTHING:
            return _nothing_found()
        room_tokens = (window_tokens - prompt.tokens) // ROOM_PART - TOKENS_PER_MESSAGE
        words = question_words(prompt.messages)
        sources = Sources()
        blocks: list[str] = []
        notes: Sequence[Note] = ()
        numbered: list[tuple[Source, Passage]] = []
        if library.notes is not None and chat.memory and holding.notes:
            budget_tokens = min(self._budgets.notes, room_tokens)
            notes = await library.notes.relevant(chat.account_id, words, budget_tokens)
            if notes:
                blocks.append(notes_block(notes))
                room_tokens -= tokens.count(blocks[-1] + BETWEEN_BLOCKS)
        if library.attachments is not None and chat.attachments and holding.attachments:
            budget_tokens = min(self._budgets.passages, room_tokens)
            passages = await library.attachments.matching(chat.account_id, words, budget_tokens)
            if passages:
                numbered = [(_source_of(passage, sources), passage) for passage in passages]
                blocks.append(passages_block(numbered))
        return FoundContext(notes, numbered, sources, blocks)


def _nothing_found() -> FoundContext:
    return FoundContext((), (), Sources(), ())


def _search_tokens() -> int:
    from services.router.grounding.search_tool import TOOLS_TOKENS

    return TOOLS_TOKENS


def _can_search(chat: ChatOpen, targets: Sequence[Target], room_tokens: int) -> bool:
    return (
        chat.search
        and room_tokens >= SEARCH_ROOM_TOKENS
        and any(target.has_tools for target in targets)
        and not chat.tool_choice_json
        # A response schema rules out function calls, or providers reject the combination.
        and b'"response_format"' not in chat.parameters_json
    )


def _source_of(passage: Passage, sources: Sources) -> Source:
    fragment = f"#page={passage.page}" if passage.page else ""
    return sources.add(passage.title, f"urn:legato:attachment:{passage.attachment_id}{fragment}")
