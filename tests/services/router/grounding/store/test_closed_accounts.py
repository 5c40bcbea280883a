"""A closed account keeps nothing here and gets nothing any more; before, its texts are listed for its export."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from legato_protos.router.v1 import content_pb2 as pb
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.grounding.assembly import Opened
from services.router.grounding.documents.library import Library
from services.router.grounding.records import Document, DocumentKind
from services.router.grounding.sealing import Sealer
from services.router.grounding.servicers.content import PASSAGES_AT_ONCE, ContentServicer
from services.router.grounding.store.tables import attachments as stored_attachments
from services.router.grounding.store.tables import metadata
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.support.fakes import FakeClock

SECRET = "The pump is painted in heliotrope."
LONG = [f"Page {number}. " + "word " * 200 for number in range(PASSAGES_AT_ONCE + 7)]


@pytest.fixture
def library(database: Database, sealer: Sealer, clock: FakeClock) -> Library:
    return Library(database, sealer, clock)


@pytest.fixture
def content(library: Library, log: Log) -> ContentServicer:
    return ContentServicer(Opened(library=library), log)


async def keep(library: Library, pages: list[str], account_id: str, on_progress: Callable[..., None] = print) -> str:
    assert library.attachments is not None
    document = Document(DocumentKind.PDF, 1234, pages)
    return (await library.attachments.add(account_id, "manual.pdf", document, on_progress)).attachment_id


async def add_note(library: Library, account_id: str) -> None:
    assert library.notes is not None
    await library.notes.add(account_id, SECRET)


def sealed_in(database: Database) -> list[bytes]:
    """Returns what is encrypted in all tables."""
    with database.transaction(writes=False) as connection:
        return [
            value
            for table in metadata.sorted_tables
            for column in table.c
            if column.name.startswith("sealed_")
            for value in connection.scalars(sa.select(column))
        ]


def content_of(folder: Path) -> bytes:
    return b"".join(part.read_bytes() for part in folder.glob("test.db*"))


def counts(database: Database) -> dict[str, int]:
    with database.transaction(writes=False) as connection:
        found = {
            table.name: int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
            for table in metadata.sorted_tables
        }
    return {name: count for name, count in found.items() if name != "closed_accounts"}


@ON_EACH_DATABASE
async def test_nothing_is_left_of_a_closed_account_and_nothing_is_added_to_it(
    library: Library, content: ContentServicer, database: Database, tmp_path: Path
) -> None:
    await add_note(library, "acct_1")
    await keep(library, [SECRET], "acct_1")
    sealed = sealed_in(database)
    assert len(sealed) == 3
    erased = await content.EraseAccount(pb.EraseAccountRequest(account_id="acct_1"), None)  # type: ignore[arg-type]
    assert (erased.notes, erased.attachments) == (1, 1)
    assert set(counts(database).values()) == {0}
    if database.is_sqlite:
        content_of_files = content_of(tmp_path)
        assert not [each for each in sealed if each in content_of_files]
    for add in (add_note(library, "acct_1"), keep(library, [SECRET], "acct_1")):
        with pytest.raises(LegatoError) as refused:
            await add
        assert refused.value.reason is Reason.NOT_FOUND
    again = await content.EraseAccount(pb.EraseAccountRequest(account_id="acct_1"), None)  # type: ignore[arg-type]
    assert (again.notes, again.attachments) == (0, 0)
    assert set(counts(database).values()) == {0}
    await add_note(library, "acct_2")


async def test_a_document_that_is_being_added_meanwhile_is_erased_as_well(
    library: Library, content: ContentServicer, database: Database
) -> None:
    closing: list[asyncio.Task[pb.EraseAccountResponse]] = []

    def close(done: int, total: int) -> None:
        erase = content.EraseAccount(pb.EraseAccountRequest(account_id="acct_1"), None)  # type: ignore[arg-type]
        closing.append(asyncio.ensure_future(erase))

    with pytest.raises(LegatoError):
        await keep(library, LONG, "acct_1", close)
    await asyncio.gather(*closing)
    assert set(counts(database).values()) == {0}


async def test_the_text_of_a_document_is_listed_in_order_and_for_its_account_alone(
    library: Library, content: ContentServicer, database: Database
) -> None:
    attachment_id = await keep(library, LONG, "acct_1")
    request = pb.ListPassagesRequest(account_id="acct_1", attachment_id=attachment_id)
    first = await content.ListPassages(request, None)  # type: ignore[arg-type]
    assert (len(first.passages), first.has_more) == (PASSAGES_AT_ONCE, True)
    request.skip = len(first.passages)
    last = await content.ListPassages(request, None)  # type: ignore[arg-type]
    assert not last.has_more
    passages = [*first.passages, *last.passages]
    assert [each.page for each in passages] == list(range(1, len(LONG) + 1))
    assert [each.text.partition(".")[0] for each in passages] == [f"Page {number}" for number in range(len(LONG))]
    for wrong in ({"account_id": "acct_2"}, {"attachment_id": "att_0"}):
        asked = pb.ListPassagesRequest(account_id="acct_1", attachment_id=attachment_id)
        asked.MergeFrom(pb.ListPassagesRequest(**wrong))  # type: ignore[arg-type]
        with pytest.raises(LegatoError) as refused:
            await content.ListPassages(asked, None)  # type: ignore[arg-type]
        assert refused.value.reason is Reason.NOT_FOUND
    with database.transaction(writes=False) as connection:
        assert connection.execute(sa.select(stored_attachments.c.attachment_id)).scalar_one() == attachment_id
