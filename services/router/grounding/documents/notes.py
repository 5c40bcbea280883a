"""Memory: notes that an account's owner writes for its chats. Chats can only read them."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.chassis.database.database import Database
from services.chassis.database.erasing import empty_write_log
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock
from services.router.grounding.blocks import NOTES
from services.router.grounding.documents.words import words_of
from services.router.grounding.records import Note, to_micros
from services.router.grounding.sealing import Sealer
from services.router.grounding.store import notes as stored
from services.router.prompts import tokens

NOTES_MOST: Final = 200
LONGEST_NOTE: Final = 2_000


class Notes:
    def __init__(self, database: Database, sealer: Sealer, clock: Clock) -> None:
        self._database = database
        self._sealer = sealer
        self._clock = clock

    async def add(self, account_id: str, text: str) -> Note:
        note = _new_note(f"note_{secrets.token_hex(8)}", account_id, to_micros(self._clock.now()), text)
        if not await self._database.write(stored.add_note, self._sealer, note, NOTES_MOST):
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("notes_most", most=NOTES_MOST))
        return note

    async def update(self, account_id: str, note_id: str, text: str) -> Note:
        """Replaces the text of a note, which keeps its place."""
        # Its time is not known before the transaction.
        note = _new_note(note_id, account_id, 0, text)
        updated = await self._database.write(stored.update_note, self._sealer, note)
        if updated is None:
            raise _unknown()
        await empty_write_log(self._database)
        return updated

    async def list_of(self, account_id: str) -> Sequence[Note]:
        """Returns the notes, oldest first; one that cannot be decrypted has no text."""
        return await self._database.read(stored.list_notes, self._sealer, account_id)

    async def remove(self, account_id: str, note_id: str | None = None) -> int:
        """Removes this note of an account, or all, and returns their number."""
        removed = await self._database.write(stored.remove_notes, account_id, note_id)
        await empty_write_log(self._database)
        if note_id is not None and not removed:
            raise _unknown()
        return removed

    async def relevant(self, account_id: str, words: Sequence[str], budget_tokens: int) -> tuple[Sequence[Note], bool]:
        """Returns all notes in order of creation, or, if they exceed the token budget, those that best match the
        question, then the newest; and whether these are all, which is then the same for every question."""
        notes = [note for note in await self.list_of(account_id) if note.text]
        are_few = sum(note.tokens for note in notes) <= budget_tokens
        if not notes or (are_few and tokens.count(NOTES.render(notes)) <= budget_tokens):
            return notes, True
        # Matching many notes takes milliseconds of CPU time, so it runs in a thread.
        return await asyncio.to_thread(_choose, notes, words, budget_tokens), False


def _new_note(note_id: str, account_id: str, created_at_us: int, text: str) -> Note:
    stripped = text.strip()
    if not 1 <= len(stripped) <= LONGEST_NOTE:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("note_length", most=LONGEST_NOTE), param="text")
    note = Note(note_id, account_id, created_at_us, 0, stripped)
    # As the preview of a prompt tells them.
    return replace(note, tokens=NOTES.tokens_of(note))


def _unknown() -> LegatoError:
    return LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="note"))


def _choose(notes: Sequence[Note], words: Sequence[str], budget_tokens: int) -> Sequence[Note]:
    asked = set(words)
    words_by_note = {note.note_id: asked.intersection(words_of(note.text)) for note in notes}
    # A word that occurs in many notes has little weight.
    spread = Counter(word for words in words_by_note.values() for word in words)
    score = {note_id: sum(1 / spread[word] for word in words) for note_id, words in words_by_note.items()}
    ranked = sorted(notes, key=lambda note: (score[note.note_id], note.created_at_us), reverse=True)
    chosen = {note.note_id for note in NOTES.fitting(ranked, budget_tokens)}
    return [note for note in notes if note.note_id in chosen]
