"""Passages found by the words of a question, whatever happened to others."""

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.sealing import Sealer
from tests.services.router.grounding.documents.test_attachments import keep, words
from tests.services.router.grounding.harness import KEY
from tests.support.fakes import FakeClock


async def test_words_that_stand_everywhere_do_not_decide(attachments: Attachments) -> None:
    pages = [f"The pump in hall {number} was inspected." for number in range(50)]
    pages[7] = "The pump in the cellar is broken."
    await keep(attachments, pages=pages)
    found = await attachments.matching("acct_1", words("Which pump is broken?"), 1000)
    assert [passage.page for passage in found] == [8]


async def test_document_that_is_all_about_one_thing_is_found_by_it(attachments: Attachments) -> None:
    await keep(attachments, pages=[f"The pump in hall {number} was inspected." for number in range(50)])
    assert await attachments.matching("acct_1", words("Tell me about the pump!"), 1000)


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
    newer = Attachments(database, Sealer({2: b"n" * 32}, told.append), clock)
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
