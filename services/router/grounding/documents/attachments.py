"""Attachments: an account's documents, and the retrieval of passages that match a question."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from services.chassis.database.database import Database
from services.chassis.database.erasing import empty_write_log
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock
from services.router.grounding.documents.passages import passages_of
from services.router.grounding.documents.ranking import rank_passages
from services.router.grounding.documents.words import words_of
from services.router.grounding.records import Attachment, Document, Passage, to_micros
from services.router.grounding.sealing import Sealer
from services.router.grounding.store import attachments as stored
from services.router.grounding.store.index import Connection, find_passages
from services.router.prompts import tokens

ATTACHMENTS_MOST: Final = 200
PASSAGES_MOST: Final = 5_000
LONGEST_NAME: Final = 200
# Of one transaction: some thousand words, written in a tenth of a second.
PASSAGES_AT_ONCE: Final = 20
# A document on which no router has worked for so long belongs to one that was interrupted.
INTERRUPTED_AFTER_S: Final = 600.0
SWEEP_INTERVAL_S: Final = 600.0

# Receives the number of passages stored so far, and the total.
OnProgress = Callable[[int, int], None]


class Attachments:
    def __init__(self, database: Database, sealer: Sealer, clock: Clock) -> None:
        self._database = database
        self._sealer = sealer
        self._clock = clock

    async def add(self, account_id: str, name: str, document: Document, on_progress: OnProgress) -> Attachment:
        attachment_id = f"att_{secrets.token_hex(8)}"
        count = await asyncio.to_thread(lambda: sum(1 for _ in passages_of(document)))
        if not count:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("document_empty"), param="document")
        if count > PASSAGES_MOST:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("document_text_long"), param="document")
        attachment = Attachment(
            attachment_id,
            account_id,
            self._now_us(),
            clean_name(name),
            document.kind,
            document.size_bytes,
            len(document.pages),
            count,
        )
        if not await self._database.write(stored.begin_attachment, self._sealer, attachment, ATTACHMENTS_MOST):
            raise _too_many()
        try:
            await self._store_passages(attachment, passages_of(document), on_progress)
            if not await self._database.write(stored.finish_attachment, attachment, ATTACHMENTS_MOST):
                raise _too_many()
        except BaseException:
            # Where that fails too, it is swept.
            with contextlib.suppress(Exception):
                await self._erase(stored.ADDING, attachment_id)
            raise
        return attachment

    async def _store_passages(
        self, attachment: Attachment, passages: Iterator[tuple[int, str]], on_progress: OnProgress
    ) -> None:
        """Stores passages in portions, each in a transaction of its own: other accounts write in between."""
        done = 0
        while True:
            some = islice(passages, PASSAGES_AT_ONCE)
            rows, words = await asyncio.to_thread(self._seal_passages, attachment, some, done)
            if not rows:
                return
            if not await self._database.write(
                stored.add_passages, attachment.attachment_id, rows, words, self._now_us()
            ):
                raise unavailable("The store of documents")
            done += len(rows)
            on_progress(done, attachment.passages)

    async def list_of(self, account_id: str) -> Sequence[Attachment]:
        """Returns the attachments, oldest first; one that cannot be decrypted has no name."""
        return await self._database.read(stored.list_attachments, self._sealer, account_id)

    async def read_passages(self, account_id: str, attachment_id: str, skip: int, most: int) -> list[tuple[int, str]]:
        """Returns the page and the text of so many passages of a document, in order."""
        found = await self._database.read(stored.list_passages, self._sealer, account_id, attachment_id, skip, most)
        if found is None:
            raise _unknown()
        return found

    async def remove(self, account_id: str, attachment_id: str) -> None:
        if not await self._erase(account_id, attachment_id):
            raise _unknown()

    async def remove_all(self, account_id: str) -> int:
        """Erases all documents of an account; returns how many."""
        kept = await self.list_of(account_id)
        return sum([await self._erase(account_id, each.attachment_id) for each in kept])

    async def sweep(self) -> None:
        """Erases what is left of documents whose adding or erasing was interrupted, as by a crash."""
        before_us = self._now_us() - round(INTERRUPTED_AFTER_S * 1e6)
        left = await self._database.read(stored.list_unfinished, before_us)
        for account_id, attachment_id in left:
            await self._erase(account_id, attachment_id)

    async def _erase(self, account_id: str, attachment_id: str) -> bool:
        """Erases a document, in portions; returns False if there is none."""
        now_us = self._now_us()
        if not await self._database.write(stored.begin_erasing, account_id, attachment_id, now_us):
            return False
        while await self._database.write(stored.erase_portion, attachment_id, PASSAGES_AT_ONCE):
            pass
        await empty_write_log(self._database)
        return True

    async def matching(self, account_id: str, words: Sequence[str], budget_tokens: int) -> Sequence[Passage]:
        """Returns the passages that match these words, best first, within the token budget."""
        if not words:
            return []
        by_digest = self._sealer.find_words(account_id, words)

        def find(connection: Connection) -> list[Passage]:
            found, weights = find_passages(connection, self._sealer, account_id, by_digest)
            return rank_passages(found, weights, budget_tokens)

        return await self._database.read(find)

    def _seal_passages(
        self, attachment: Attachment, passages: Iterable[tuple[int, str]], first: int = 0
    ) -> tuple[list[stored.RowValues], list[stored.RowValues]]:
        """Returns the rows of passages, and those of their words in the index."""
        account_id = attachment.account_id
        passage_rows, posting_rows = [], []
        for position, (page, text) in enumerate(passages, first):
            passage_id = secrets.randbits(62)
            sealed = self._sealer.seal(text, account_id, "passage", str(passage_id))
            passage_rows.append(
                {
                    "passage_id": passage_id,
                    "attachment_id": attachment.attachment_id,
                    "page": page,
                    "tokens": tokens.count(text),
                    "key_version": sealed.key_version,
                    "sealed_text": sealed.data,
                    "position": position,
                }
            )
            posting_rows += [
                {"account_id": account_id, "word": word, "passage_id": passage_id}
                for word in self._sealer.index_words(account_id, words_of(text))
            ]
        return passage_rows, posting_rows

    def _now_us(self) -> int:
        return to_micros(self._clock.now())


def _unknown() -> LegatoError:
    return LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="attachment"))


def _too_many() -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, Sentence("attachments_most", most=ATTACHMENTS_MOST))


def clean_name(name: str) -> str:
    """Reduces a path to a printable file name."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[:LONGEST_NAME] or "document"
