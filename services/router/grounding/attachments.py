"""Attachments: an account's documents, and the retrieval of passages that match a question."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.timing.deadlines import Clock
from services.router.grounding import ranking
from services.router.grounding.ranking import words_of
from services.router.grounding.records import Attachment, Document, Passage, to_micros
from services.router.grounding.sealing import Sealer, name_place, passage_place
from services.router.grounding.store import attachments as stored
from services.router.grounding.store.tables import empty_write_log
from services.router.prompts import tokens

LONGEST_CHARACTERS: Final = 1200

_PARAGRAPHS: Final = re.compile(r"\n\s*\n")
_SENTENCES: Final = re.compile("(?<=[.!?\u3002\uff01\uff1f])\\s+|\n")
_SPACES: Final = re.compile(r"[ \t\f\v\u00a0]+")


def split_into_passages(page: str) -> Iterator[str]:
    """Yields passages; keeps paragraphs whole unless they are too long, then sentences, then words."""
    gathered = ""
    for part in _parts(_SPACES.sub(" ", page.replace("\r\n", "\n"))):
        if gathered and len(gathered) + len(part) + 1 > LONGEST_CHARACTERS:
            yield gathered
            gathered = ""
        gathered = f"{gathered}\n{part}" if gathered else part
    if gathered:
        yield gathered


def _parts(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPHS.split(text):
        stripped = paragraph.strip()
        if len(stripped) <= LONGEST_CHARACTERS:
            if stripped:
                yield stripped
            continue
        for sentence in _SENTENCES.split(stripped):
            yield from _cut(sentence.strip())


def _cut(sentence: str) -> Iterator[str]:
    """Splits at word boundaries by index: repeated slicing would copy a long text thousands of times."""
    begin, end = 0, len(sentence)
    while end - begin > LONGEST_CHARACTERS:
        at = sentence.rfind(" ", begin, begin + LONGEST_CHARACTERS)
        at = begin + LONGEST_CHARACTERS if at <= begin else at
        yield sentence[begin:at]
        begin = at
        while begin < end and sentence[begin].isspace():
            begin += 1
    if begin < end:
        yield sentence[begin:]


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
        count = await asyncio.to_thread(lambda: sum(1 for _ in _passages_of(document)))
        if not count:
            raise LegatoError(Reason.REQUEST_INVALID, "The document has no text.", param="document")
        if count > PASSAGES_MOST:
            raise LegatoError(
                Reason.REQUEST_INVALID, "The document has too much text: split it into several.", param="document"
            )
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
        sealed = stored.SealedAttachment(
            attachment_id,
            account_id,
            attachment.created_at_us,
            attachment.kind,
            attachment.size_bytes,
            attachment.pages,
            attachment.passages,
            self._sealer.seal(attachment.name, name_place(account_id, attachment_id)),
        )
        if not await self._database.write(
            lambda connection: stored.begin_attachment(connection, sealed, ATTACHMENTS_MOST)
        ):
            raise _too_many()
        try:
            await self._store_passages(sealed, _passages_of(document), on_progress)
            if not await self._database.write(
                lambda connection: stored.finish_attachment(connection, sealed, ATTACHMENTS_MOST)
            ):
                raise _too_many()
        except BaseException:
            # Where that fails too, it is swept.
            with contextlib.suppress(Exception):
                await self._erase(stored.ADDING, attachment_id)
            raise
        return attachment

    async def _store_passages(
        self, attachment: stored.SealedAttachment, passages: Iterator[tuple[int, str]], on_progress: OnProgress
    ) -> None:
        """Stores passages in portions, each in a transaction of its own: other accounts write in between."""
        done = 0
        while some := await asyncio.to_thread(self._seal_some, attachment.account_id, passages):
            if not await self._database.write(partial(stored.add_passages, attachment, some, self._now_us())):
                raise unavailable("The store of documents")
            done += len(some)
            on_progress(done, attachment.passages)

    async def list_of(self, account_id: str) -> Sequence[Attachment]:
        """Returns the attachments, oldest first; one that cannot be decrypted has no name."""
        sealed = await self._database.read(lambda connection: stored.list_attachments(connection, account_id))
        return [self._open(attachment) for attachment in sealed]

    async def remove(self, account_id: str, attachment_id: str) -> None:
        if not await self._erase(account_id, attachment_id):
            raise LegatoError(Reason.NOT_FOUND, "There is no such attachment.")

    async def sweep(self) -> None:
        """Erases what is left of documents whose adding or erasing was interrupted, as by a crash."""
        before_us = self._now_us() - round(INTERRUPTED_AFTER_S * 1e6)
        left = await self._database.read(lambda connection: stored.list_unfinished(connection, before_us))
        for account_id, attachment_id in left:
            await self._erase(account_id, attachment_id)

    async def _erase(self, account_id: str, attachment_id: str) -> bool:
        """Erases a document, in portions; returns False if there is none."""
        now_us = self._now_us()
        if not await self._database.write(
            lambda connection: stored.begin_erasing(connection, account_id, attachment_id, now_us)
        ):
            return False
        while await self._database.write(
            lambda connection: stored.erase_portion(connection, attachment_id, PASSAGES_AT_ONCE)
        ):
            pass
        await empty_write_log(self._database)
        return True

    async def matching(self, account_id: str, words: Sequence[str], budget_tokens: int) -> Sequence[Passage]:
        """Returns the passages that match these words, best first, within the token budget."""
        if not words:
            return []
        return await self._database.read(
            lambda connection: ranking.find_passages(connection, self._sealer, account_id, words, budget_tokens)
        )

    def _seal_some(self, account_id: str, passages: Iterator[tuple[int, str]]) -> list[stored.SealedPassage]:
        sealed = []
        for page, text in islice(passages, PASSAGES_AT_ONCE):
            passage_id = secrets.randbits(62)
            sealed.append(
                stored.SealedPassage(
                    passage_id,
                    page,
                    tokens.count(text),
                    self._sealer.seal(text, passage_place(account_id, passage_id)),
                    frozenset(self._sealer.index_words(account_id, words_of(text))),
                )
            )
        return sealed

    def _now_us(self) -> int:
        return to_micros(self._clock.now())

    def _open(self, sealed: stored.SealedAttachment) -> Attachment:
        return Attachment(
            sealed.attachment_id,
            sealed.account_id,
            sealed.created_at_us,
            self._sealer.open_if_possible(sealed.name, name_place(sealed.account_id, sealed.attachment_id)) or "",
            sealed.kind,
            sealed.size_bytes,
            sealed.pages,
            sealed.passages,
        )


def _passages_of(document: Document) -> Iterator[tuple[int, str]]:
    """Yields each passage with its page, which is 0 if the document has no pages."""
    has_pages = len(document.pages) > 1
    for number, page in enumerate(document.pages, start=1):
        for text in split_into_passages(page):
            yield (number if has_pages else 0), text


def _too_many() -> LegatoError:
    return LegatoError(
        Reason.REQUEST_INVALID, f"An account may have at most {ATTACHMENTS_MOST} attachments: remove one first."
    )


def clean_name(name: str) -> str:
    """Reduces a path to a printable file name."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[:LONGEST_NAME] or "document"
