"""Documents that owners keep, and the passages of them that a question is about."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.documents.words import words_of
from services.router.grounding.records import Attachment, Document, DocumentKind
from tests.services.router.grounding.conftest import ON_EACH_DATABASE

MANUAL = [
    "The Zephyr pump is filled with 3.5 litres of oil. Its filter is changed every 400 hours.",
    "The warranty lasts for five years from the date of purchase.",
    "Store the pump in a dry room. The room must not freeze.",
]


async def keep(attachments: Attachments, account_id: str = "acct_1", pages: list[str] = MANUAL) -> Attachment:
    document = Document(DocumentKind.PDF, 1234, pages)
    return await attachments.add(account_id, "folder/manual.pdf", document, lambda done, total: None)


def words(question: str) -> list[str]:
    return list(words_of(question))


@ON_EACH_DATABASE
async def test_passage_that_answers_is_found_with_its_name_and_page(attachments: Attachments) -> None:
    kept = await keep(attachments)
    assert (kept.name, kept.kind, kept.pages, kept.passages) == ("manual.pdf", "pdf", 3, 3)
    [best, *_] = await attachments.matching("acct_1", words("How long is the warranty?"), 1000)
    assert (best.name, best.page, best.attachment_id) == ("manual.pdf", 2, kept.attachment_id)
    assert "five years" in best.text


async def test_question_about_something_else_finds_nothing(attachments: Attachments) -> None:
    await keep(attachments)
    assert await attachments.matching("acct_1", words("Who wrote Faust?"), 1000) == []
    assert await attachments.matching("acct_1", [], 1000) == []


async def test_account_finds_nothing_of_another(attachments: Attachments) -> None:
    await keep(attachments, "acct_1")
    assert await attachments.matching("acct_2", words("warranty"), 1000) == []
    assert await attachments.list_of("acct_2") == []
    with pytest.raises(LegatoError) as refusal:
        await attachments.remove("acct_2", (await attachments.list_of("acct_1"))[0].attachment_id)
    assert refusal.value.reason is Reason.NOT_FOUND


@ON_EACH_DATABASE
async def test_removed_document_is_found_no_more(attachments: Attachments) -> None:
    kept = await keep(attachments)
    await attachments.remove("acct_1", kept.attachment_id)
    assert await attachments.list_of("acct_1") == []
    assert await attachments.matching("acct_1", words("warranty"), 1000) == []


async def test_document_without_text_is_refused(attachments: Attachments) -> None:
    with pytest.raises(LegatoError, match="no text"):
        await keep(attachments, pages=["", " \n "])


async def test_progress_is_told_up_to_the_end(attachments: Attachments) -> None:
    told: list[tuple[int, int]] = []
    document = Document(DocumentKind.TEXT, 1, [f"Chapter {number}. {'word ' * 200}" for number in range(120)])
    await attachments.add("acct_1", "book", document, lambda done, total: told.append((done, total)))
    await attachments.list_of("acct_1")
    assert told == sorted(told)
    assert told[-1] == (120, 120)


async def test_file_holds_no_word_in_clear_and_nothing_of_what_was_deleted(
    attachments: Attachments, database: Database, tmp_path: Path
) -> None:
    kept = await keep(attachments)

    def sealed_and_words() -> list[bytes]:
        with database.engine.connect() as connection:
            texts = connection.execute(sa.text("SELECT sealed_text FROM passages")).scalars().all()
            names = connection.execute(sa.text("SELECT sealed_name FROM attachments")).scalars().all()
            digests = connection.execute(sa.text("SELECT word FROM postings")).scalars().all()
            return [*texts, *names, *digests]

    def files() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.glob("test.db*"))

    stored = sealed_and_words()
    assert len(stored) > 20
    assert all(piece in files() for piece in stored)
    assert not any(word in files().lower() for word in (b"zephyr", b"warranty", b"litres", b"manual"))
    await attachments.remove("acct_1", kept.attachment_id)
    left = files()
    assert not [piece for piece in stored if piece in left]
