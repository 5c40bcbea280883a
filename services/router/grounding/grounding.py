"""Adds context to a chat without tools: notes, passages of documents, and web search."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from legato_protos.router.v1 import grounding_pb2 as pb
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import unavailable
from services.chassis.rpc.messages import to_message
from services.chassis.telemetry.log import Log
from services.router.answers.relay import Cite
from services.router.grounding.blocks import NOTES, PASSAGES
from services.router.grounding.documents.words import question_words
from services.router.grounding.records import Note, Passage
from services.router.grounding.search import Search
from services.router.grounding.search_tool import TOOLS, SearchTool, tools_tokens
from services.router.grounding.settings import GroundingSettings
from services.router.prompts import tokens
from services.router.prompts.prompt import TOKENS_PER_MESSAGE, Prompt
from services.router.routes.target import Target
from services.router.schema.citations import Source, Sources

if TYPE_CHECKING:
    # Imported for types only: it pulls in encryption and the database, which other routers do not load.
    from services.router.grounding.documents.library import Library

# Timeout of the lookup; the chat continues without it.
LOOK_UP_WITHIN_S: Final = 2.0

# The share of the free context window that grounding may use: one part in this many.
ROOM_PART: Final = 4

BETWEEN_BLOCKS: Final = "\n\n"

# Search is not offered with less free context than this.
SEARCH_ROOM_TOKENS: Final = 2000


@dataclass(frozen=True, slots=True, repr=False)
class FoundContext:
    """The notes and passages that a chat is given, in the order of the prompt."""

    notes: Sequence[Note] = ()
    passages: Sequence[Passage] = ()
    # The block of all notes, which is the same in every turn and stands before the conversation.
    lasting_block: str = ""
    # The blocks that were chosen for this question, which stand after it: caches find all before them again.
    chosen_blocks: Sequence[str] = ()

    @property
    def text(self) -> str:
        return BETWEEN_BLOCKS.join(filter(None, (self.lasting_block, *self.chosen_blocks)))

    @property
    def sources(self) -> Sources:
        """The passages as sources, numbered as in their block."""
        sources = Sources()
        for passage in self.passages:
            fragment = f"#page={passage.page}" if passage.page else ""
            sources.append(Source(passage.title, f"urn:legato:attachment:{passage.attachment_id}{fragment}"))
        return sources


@dataclass(frozen=True, slots=True, repr=False)
class Grounded:
    """A chat with its added context."""

    prompt: Prompt
    # None: there is nothing to cite.
    cite: Cite | None = None
    # None: the model cannot search.
    tool: SearchTool | None = None

    @property
    def prompt_without_search(self) -> Prompt:
        return replace(self.prompt, offered_tools=None, tokens=self.prompt.tokens - tools_tokens())


class Grounding:
    def __init__(self, settings: GroundingSettings, library: "Library | None", search: Search | None, log: Log) -> None:
        self._settings = settings
        self._library = library
        self._search = search
        self._log = log

    async def ground(self, chat: ChatOpen, prompt: Prompt, targets: Sequence[Target]) -> Grounded:
        """Adds context to the prompt; `targets` are the models that may answer."""
        window_tokens = min(target.context_tokens for target in targets)
        search = self._search_for(chat, targets)
        try:
            found = await self._find(chat, prompt, window_tokens)
        except Exception as error:
            # A failed lookup is logged, and the chat is answered without it.
            self._log.failure("grounding.failed", error, request_id=chat.request_id)
            found = FoundContext()
        prompt = _with_found(prompt, found)
        sources, room_tokens = found.sources, window_tokens - prompt.tokens
        has_search = search is not None and room_tokens >= SEARCH_ROOM_TOKENS
        if search is None or not has_search:
            return Grounded(prompt, sources.cited_in if sources else None)

        def on_failure(why: str) -> None:
            self._log.warning("search.failed", request_id=chat.request_id, reason=why)

        tool = SearchTool(search, sources, room_tokens // 2, self._settings.search_rounds, on_failure)
        with_tool = replace(prompt, offered_tools=TOOLS, tokens=prompt.tokens + tools_tokens())
        return Grounded(with_tool, sources.cited_in, tool)

    async def preview(self, chat: ChatOpen, prompt: Prompt, targets: Sequence[Target]) -> pb.PreviewGroundingResponse:
        """Returns what `ground` would add to the prompt. Raises where a chat would be answered without it."""
        window_tokens = min(target.context_tokens for target in targets)
        try:
            found = await self._find(chat, prompt, window_tokens)
        except Exception as error:
            self._log.failure("grounding.failed", error)
            raise unavailable("The store of notes and documents") from None
        grounded = _with_found(prompt, found)
        added_tokens = grounded.tokens - prompt.tokens
        passages_tokens = 0
        if found.passages:
            is_only = not found.notes
            passages_tokens = added_tokens if is_only else tokens.count(BETWEEN_BLOCKS + found.chosen_blocks[-1])
        has_room = window_tokens - grounded.tokens >= SEARCH_ROOM_TOKENS
        offers_search = has_room and self._search_for(chat, targets) is not None
        return pb.PreviewGroundingResponse(
            added_text=found.text,
            notes=[to_message(pb.Note, note, tokens=NOTES.tokens_of(note)) for note in found.notes],
            passages=[
                to_message(pb.PreviewedPassage, passage, number=number, tokens=PASSAGES.tokens_of(passage))
                for number, passage in enumerate(found.passages, 1)
            ],
            offers_search=offers_search,
            tokens=pb.PromptTokens(
                notes=added_tokens - passages_tokens,
                passages=passages_tokens,
                search=tools_tokens() if offers_search else 0,
            ),
        )

    def _search_for(self, chat: ChatOpen, targets: Sequence[Target]) -> Search | None:
        """Returns the search, if the chat may use it."""
        may_search = (
            chat.search
            and any(target.has_tools for target in targets)
            and not chat.tool_choice_json
            # A response schema rules out function calls, or providers reject the combination.
            and b'"response_format"' not in chat.parameters_json
        )
        return self._search if may_search else None

    async def _find(self, chat: ChatOpen, prompt: Prompt, window_tokens: int) -> FoundContext:
        library = self._library
        if library is None or not (chat.memory or chat.attachments):
            return FoundContext()
        async with asyncio.timeout(LOOK_UP_WITHIN_S):
            holding = await library.holding_of(chat.account_id)
            if not any(holding):
                return FoundContext()
            room_tokens = (window_tokens - prompt.tokens) // ROOM_PART - TOKENS_PER_MESSAGE
            words = question_words(prompt.messages)
            lasting_block = ""
            chosen_blocks: list[str] = []
            notes: Sequence[Note] = ()
            passages: Sequence[Passage] = ()
            if library.notes is not None and chat.memory and holding.notes:
                budget_tokens = min(self._settings.memory_tokens, room_tokens)
                notes, are_all = await library.notes.relevant(chat.account_id, words, budget_tokens)
                if notes:
                    block = NOTES.render(notes)
                    if are_all:
                        lasting_block = block
                    else:
                        chosen_blocks.append(block)
                    room_tokens -= tokens.count(block + BETWEEN_BLOCKS)
            if library.attachments is not None and chat.attachments and holding.attachments:
                budget_tokens = min(self._settings.attachment_tokens, room_tokens)
                passages = await library.attachments.matching(chat.account_id, words, budget_tokens)
                if passages:
                    chosen_blocks.append(PASSAGES.render(passages))
            return FoundContext(notes, passages, lasting_block, chosen_blocks)


def _with_found(prompt: Prompt, found: FoundContext) -> Prompt:
    messages, added_tokens = prompt.messages, 0
    if found.lasting_block:
        messages = messages.insert_guidance(found.lasting_block)
        added_tokens += TOKENS_PER_MESSAGE + tokens.count(found.lasting_block)
    if found.chosen_blocks:
        text = BETWEEN_BLOCKS.join(found.chosen_blocks)
        messages = messages.add_context(text)
        added_tokens += tokens.count(BETWEEN_BLOCKS + text)
        if messages.context is None:
            # There is no user message, so it is a message of its own.
            added_tokens += TOKENS_PER_MESSAGE
    return replace(prompt, messages=messages, tokens=prompt.tokens + added_tokens) if added_tokens else prompt
