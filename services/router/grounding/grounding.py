"""What a plain chat is given beside its conversation: notes, passages of documents, and a way to search."""

import asyncio
from dataclasses import dataclass
from typing import Final

from protos.router.v1.router_pb2 import ChatOpen
from services.chassis.log import Log
from services.router.grants import ChatConversation
from services.router.grounding.attachments import Attachments
from services.router.grounding.blocks import notes_block, passages_block
from services.router.grounding.citations import CitingConversation, Source, Sources
from services.router.grounding.holdings import NOTHING, Holdings
from services.router.grounding.notes import Notes
from services.router.grounding.questions import question_words
from services.router.grounding.records import Passage
from services.router.prompt import Prompt, insert_guidance

# A store that is slower than this is done without.
LOOK_UP_WITHIN_S: Final = 2.0

# Of the room that a conversation leaves in the model's window, what may be used for grounding: one part in so many.
ROOM_PART: Final = 4


@dataclass(frozen=True, slots=True)
class Budgets:
    """In tokens, at most."""

    notes: int
    passages: int


@dataclass(frozen=True, slots=True)
class Library:
    """What accounts keep; None where that is not configured."""

    notes: Notes | None
    attachments: Attachments | None
    holdings: Holdings


@dataclass(frozen=True, slots=True, repr=False)
class Grounded:
    """A chat with what it was given."""

    prompt: Prompt
    # Tells at the end which sources the answer names.
    conversation: ChatConversation
    sources: Sources


class Grounding:
    def __init__(self, library: Library | None, budgets: Budgets, log: Log) -> None:
        self._library = library
        self._budgets = budgets
        self._log = log

    async def ground(
        self, chat: ChatOpen, prompt: Prompt, window_tokens: int, conversation: ChatConversation
    ) -> Grounded:
        sources = Sources()
        if self._library is not None and (chat.memory or chat.attachments):
            prompt = await self._look_up(self._library, chat, prompt, window_tokens, sources)
        return Grounded(prompt, CitingConversation(conversation, sources), sources)

    async def _look_up(
        self, library: Library, chat: ChatOpen, prompt: Prompt, window_tokens: int, sources: Sources
    ) -> Prompt:
        """The prompt with what is found; as it was, where nothing is, or where the store does not answer."""
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                return await self._with_findings(library, chat, prompt, window_tokens, sources)
        except Exception as error:
            # Whatever is wrong there, people get an answer; those who run the service are told.
            self._log.failure("grounding.failed", error, request_id=chat.request_id)
            return prompt

    async def _with_findings(
        self, library: Library, chat: ChatOpen, prompt: Prompt, window_tokens: int, sources: Sources
    ) -> Prompt:
        holding = await library.holdings.of(chat.account_id)
        if holding == NOTHING:
            return prompt
        room_tokens = max(0, window_tokens - prompt.tokens) // ROOM_PART
        words = question_words(chat.messages_json)
        blocks = []
        if library.notes is not None and chat.memory and holding.notes:
            budget_tokens = min(self._budgets.notes, room_tokens)
            notes = await library.notes.relevant(chat.account_id, words, budget_tokens)
            if notes:
                blocks.append(notes_block(notes))
                room_tokens -= sum(note.tokens for note in notes)
        if library.attachments is not None and chat.attachments and holding.attachments:
            budget_tokens = min(self._budgets.passages, room_tokens)
            passages = await library.attachments.matching(chat.account_id, words, budget_tokens)
            if passages:
                blocks.append(passages_block([(_source_of(passage, sources), passage) for passage in passages]))
        return insert_guidance(prompt, "\n\n".join(blocks)) if blocks else prompt


def _source_of(passage: Passage, sources: Sources) -> Source:
    page = f", page {passage.page}" if passage.page else ""
    fragment = f"#page={passage.page}" if passage.page else ""
    return sources.add(passage.name + page, f"urn:legato:attachment:{passage.attachment_id}{fragment}")
