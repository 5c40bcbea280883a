"""Documents whose passages are being added or erased, in several transactions."""

import asyncio
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.errors import LegatoError, Reason
from services.router.grounding.documents.attachments import INTERRUPTED_AFTER_S, PASSAGES_AT_ONCE, Attachments
from services.router.grounding.documents.notes import Notes
from services.router.grounding.records import Attachment, Document, DocumentKind
from services.router.grounding.store import attachments as stored
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.support.fakes import FakeClock

ACCOUNT = "acct_1"
PORTIONS = 5
BOOK = [f"Chapter {number} of the book is about pumps." for number in range(PORTIONS * PASSAGES_AT_ONCE)]


class Interrupted(Exception):
    """What ends an addition in these tests, where a crash would."""


def document(pages: list[str]) -> Document:
    return Document(DocumentKind.PDF, 1234, pages)


async def keep(
    attachments: Attachments, pages: list[str], on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Attachment:
    return await attachments.add(ACCOUNT, "book.pdf", document(pages), on_progress)


async def found(attachments: Attachments, word: str) -> list[str]:
    return [passage.text for passage in await attachments.matching(ACCOUNT, [word], 10_000)]


async def count_rows(database: Database) -> list[int]:
    def count(connection: sa.Connection) -> list[int]:
        tables = ("attachments", "passages", "postings")
        return [connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables]

    return await database.read(count)


def crash_after(portions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither adds more portions, nor erases those that were added."""
    left = iter(range(portions))
    add_passages = stored.add_passages

    def add(*arguments: object) -> bool:
        if next(left, None) is None:
            raise Interrupted
        return add_passages(*arguments)  # type: ignore[arg-type]

    def fail(*arguments: object) -> bool:
        raise Interrupted

    monkeypatch.setattr(stored, "add_passages", add)
    monkeypatch.setattr(stored, "begin_erasing", fail)


@ON_EACH_DATABASE
async def test_notes_of_others_are_written_between_the_passages_of_a_document(
    attachments: Attachments, notes: Notes
) -> None:
    begun = asyncio.Event()
    told: list[int] = []

    def on_progress(done: int, total: int) -> None:
        told.append(done)
        begun.set()

    adding = asyncio.create_task(keep(attachments, BOOK, on_progress))
    await begun.wait()
    await notes.add("acct_2", "I live in Ottawa.")
    assert told[-1] < len(BOOK)
    kept = await adding
    erasing = asyncio.create_task(attachments.remove(ACCOUNT, kept.attachment_id))
    await asyncio.sleep(0)
    await notes.add("acct_2", "I live in Gatineau.")
    assert not erasing.done()
    await erasing


@ON_EACH_DATABASE
async def test_document_is_neither_listed_nor_found_before_its_last_passage(
    attachments: Attachments, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(attachments, ["A leaflet on pumps and valves."])
    with monkeypatch.context() as crashing:
        crash_after(PORTIONS - 1, crashing)
        with pytest.raises(Interrupted):
            await keep(attachments, BOOK)
    # However many passages of the book match, they are not in the way of those of the leaflet.
    assert await found(attachments, "pump") == ["A leaflet on pumps and valves."]
    assert await found(attachments, "chapter") == []
    assert len(await attachments.list_of(ACCOUNT)) == 1
    kept = await keep(attachments, BOOK)
    assert any("Chapter" in text for text in await found(attachments, "chapter"))
    await attachments.remove(ACCOUNT, kept.attachment_id)
    assert await found(attachments, "chapter") == []
    assert (await count_rows(database))[:2] == [2, 1 + (PORTIONS - 1) * PASSAGES_AT_ONCE]


@ON_EACH_DATABASE
async def test_what_a_crash_left_is_never_found_and_is_erased_later(
    attachments: Attachments, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crashing:
        crash_after(2, crashing)
        with pytest.raises(Interrupted):
            await keep(attachments, BOOK)
    assert (await count_rows(database))[:2] == [1, 2 * PASSAGES_AT_ONCE]
    assert await attachments.list_of(ACCOUNT) == []
    assert await found(attachments, "pump") == []
    await attachments.sweep()
    # Another router might be at it.
    assert (await count_rows(database))[0] == 1
    clock.advance(INTERRUPTED_AFTER_S + 1)
    await attachments.sweep()
    assert await count_rows(database) == [0, 0, 0]


async def test_what_a_crash_left_of_a_removal_is_erased_later(
    attachments: Attachments, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await keep(attachments, BOOK)
    erase_portion = stored.erase_portion

    def erase(connection: sa.Connection, attachment_id: str, most: int) -> bool:
        erase_portion(connection, attachment_id, most)
        connection.commit()
        raise Interrupted

    with monkeypatch.context() as crashing:
        crashing.setattr(stored, "erase_portion", erase)
        with pytest.raises(Interrupted):
            await attachments.remove(ACCOUNT, kept.attachment_id)
    assert await attachments.list_of(ACCOUNT) == []
    assert await found(attachments, "chapter") == []
    clock.advance(INTERRUPTED_AFTER_S + 1)
    await attachments.sweep()
    assert await count_rows(database) == [0, 0, 0]


async def test_sweep_leaves_finished_documents_alone(attachments: Attachments, clock: FakeClock) -> None:
    kept = await keep(attachments, BOOK)
    clock.advance(INTERRUPTED_AFTER_S + 1)
    await attachments.sweep()
    assert await attachments.list_of(ACCOUNT) == [kept]
    assert await found(attachments, "chapter")


@ON_EACH_DATABASE
async def test_document_that_fails_midway_leaves_nothing(
    attachments: Attachments, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_passages = stored.add_passages

    def add(connection: sa.Connection, *arguments: object) -> bool:
        if (connection.execute(sa.text("SELECT count(*) FROM passages")).scalar_one()) >= 2 * PASSAGES_AT_ONCE:
            raise DatabaseUnavailable
        return add_passages(connection, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as failing:
        failing.setattr(stored, "add_passages", add)
        with pytest.raises(DatabaseUnavailable):
            await keep(attachments, BOOK)
    assert await count_rows(database) == [0, 0, 0]


async def test_document_whose_sender_leaves_midway_leaves_nothing(attachments: Attachments, database: Database) -> None:
    begun = asyncio.Event()
    adding = asyncio.create_task(keep(attachments, BOOK, lambda done, total: begun.set()))
    await begun.wait()
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    assert adding.cancelled()
    assert await count_rows(database) == [0, 0, 0]


async def test_document_whose_sender_leaves_at_the_very_end_is_kept_whole(
    attachments: Attachments, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = stored.finish_attachment
    loop = asyncio.get_running_loop()

    def finish_and_cancel(connection: sa.Connection, attachment: Attachment, most: int) -> bool:
        is_finished = finish(connection, attachment, most)
        loop.call_soon_threadsafe(adding.cancel)
        return is_finished

    monkeypatch.setattr(stored, "finish_attachment", finish_and_cancel)
    adding = asyncio.create_task(keep(attachments, BOOK))
    await asyncio.gather(adding, return_exceptions=True)
    assert adding.cancelled()
    [kept] = await attachments.list_of(ACCOUNT)
    assert (await count_rows(database))[:2] == [1, kept.passages]


async def test_document_that_was_swept_while_it_was_added_is_not_finished(
    attachments: Attachments, database: Database, clock: FakeClock
) -> None:
    sweep = sa.text("UPDATE attachments SET account_id = :erasing")
    swept: list[asyncio.Future[object]] = []

    def on_progress(done: int, total: int) -> None:
        # Another router does that; here it is the next write.
        swept.append(database.write(lambda connection: connection.execute(sweep, {"erasing": stored.ERASING})))

    with pytest.raises(LegatoError) as refusal:
        await keep(attachments, BOOK, on_progress)
    assert refusal.value.reason is Reason.UNAVAILABLE
    await asyncio.gather(*swept)
    clock.advance(INTERRUPTED_AFTER_S + 1)
    await attachments.sweep()
    assert await count_rows(database) == [0, 0, 0]
