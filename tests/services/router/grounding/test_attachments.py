"""Documents that owners keep, and the passages of them that a question is about."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.router.grounding.attachments import LONGEST_CHARACTERS, Attachments, split_into_passages
from services.router.grounding.blocks import passages_block
from services.router.grounding.citations import Sources
from services.router.grounding.ranking import words_of
from services.router.grounding.records import Attachment, Document, DocumentKind
from services.router.grounding.sealing import Sealer
from services.router.prompts.tokens import count
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.services.router.grounding.harness import KEY
from tests.support.fakes import FakeClock

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


async def test_no_more_passages_are_given_than_fit(attachments: Attachments) -> None:
    await keep(attachments, pages=[f'Pump number "{number}" is <red>. ' * 10 for number in range(6)])
    found = await attachments.matching("acct_1", words("pump"), 500)
    assert found
    sources = Sources()
    assert count(passages_block((sources.add(passage.title, ""), passage) for passage in found)) <= 500


async def test_words_that_stand_everywhere_do_not_decide(attachments: Attachments) -> None:
    pages = [f"The pump in hall {number} was inspected." for number in range(50)]
    pages[7] = "The pump in the cellar is broken."
    await keep(attachments, pages=pages)
    found = await attachments.matching("acct_1", words("Which pump is broken?"), 1000)
    assert [passage.page for passage in found] == [8]


async def test_document_that_is_all_about_one_thing_is_found_by_it(attachments: Attachments) -> None:
    await keep(attachments, pages=[f"The pump in hall {number} was inspected." for number in range(50)])
    assert await attachments.matching("acct_1", words("Tell me about the pump!"), 1000)


@ON_EACH_DATABASE
async def test_removed_document_is_found_no_more(attachments: Attachments) -> None:
    kept = await keep(attachments)
    await attachments.remove("acct_1", kept.attachment_id)
    assert await attachments.list_of("acct_1") == []
    assert await attachments.matching("acct_1", words("warranty"), 1000) == []


async def test_document_without_text_is_refused(attachments: Attachments) -> None:
    with pytest.raises(LegatoError, match="no text"):
        await keep(attachments, pages=["", " \n "])


async def test_document_is_found_after_a_newer_key_was_added(database: Database, clock: FakeClock) -> None:
    await keep(Attachments(database, Sealer({1: KEY}), clock))
    newer = Attachments(database, Sealer({1: KEY, 2: b"n" * 32}), clock)
    await keep(newer, pages=["The Zephyr has a warranty card."])
    assert {passage.name for passage in await newer.matching("acct_1", words("warranty"), 1000)} == {"manual.pdf"}
    assert len(await newer.matching("acct_1", words("warranty"), 1000)) == 2


async def test_document_whose_key_is_gone_takes_no_other_with_it_and_can_be_removed(
    database: Database, clock: FakeClock
) -> None:
    lost = await keep(Attachments(database, Sealer({1: KEY}), clock))
    told: list[str] = []
    newer = Attachments(database, Sealer({2: b"n" * 32}, lambda place: told.append(place.account_id)), clock)
    kept = await keep(newer)
    assert [each.attachment_id for each in await newer.matching("acct_1", words("warranty"), 1000)] == [
        kept.attachment_id
    ]
    assert sorted(each.name for each in await newer.list_of("acct_1")) == ["", "manual.pdf"]
    assert told == ["acct_1"]
    await newer.remove("acct_1", lost.attachment_id)
    assert await newer.list_of("acct_1") == [kept]


async def test_passage_that_was_changed_takes_no_other_with_it(attachments: Attachments, database: Database) -> None:
    await keep(attachments)
    change = sa.text("UPDATE passages SET sealed_text = :data WHERE page = 1")
    await database.write(lambda connection: connection.execute(change, {"data": bytes(60)}))
    assert [each.page for each in await attachments.matching("acct_1", words("pump oil"), 1000)] == [3]


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


def test_short_document_is_one_passage() -> None:
    assert list(split_into_passages("One.\n\nTwo,\nand three.\r\n")) == ["One.\nTwo,\nand three."]


def test_paragraphs_stay_whole_where_they_fit() -> None:
    paragraphs = [f"{word} " * 100 for word in ("first", "second", "third")]
    passages = list(split_into_passages("\n\n".join(paragraphs)))
    assert [passage.strip() for passage in passages] == [f"{p.strip()}" for p in paragraphs]


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab .!\n\t"), max_size=6_000))
def test_no_passage_is_too_long_and_no_word_is_lost(text: str) -> None:
    passages = list(split_into_passages(text))
    assert all(0 < len(passage) <= LONGEST_CHARACTERS for passage in passages)
    assert "".join("".join(passages).split()) == "".join(text.split())
