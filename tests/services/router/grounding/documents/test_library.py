"""Accounts that have notes or documents, as chats know it."""

import asyncio

from services.chassis.database.database import Database
from services.router.grounding.documents.library import BELIEVED_S, Library
from services.router.grounding.documents.notes import Notes
from services.router.grounding.records import Holding
from services.router.grounding.sealing import Sealer
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.support.fakes import FakeClock


class Counting(Database):
    reads = 0

    async def read(self, look, *arguments, **named):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await super().read(look, *arguments, **named)


async def test_database_is_asked_once_for_many_chats_of_an_account(
    database_url: str, database: Database, sealer: Sealer, clock: FakeClock
) -> None:
    counting = Counting(database_url, "router")
    library = Library(counting, sealer, clock)
    for _ in range(100):
        assert await library.holding_of("acct_1") == Holding(notes=False, attachments=False)
    assert counting.reads == 1
    counting.close()


@ON_EACH_DATABASE
async def test_first_note_counts_at_once_here_and_soon_elsewhere(
    database: Database, sealer: Sealer, notes: Notes, clock: FakeClock
) -> None:
    here, elsewhere = Library(database, sealer, clock), Library(database, sealer, clock)
    await asyncio.gather(here.holding_of("acct_1"), elsewhere.holding_of("acct_1"))
    await notes.add("acct_1", "I drink tea.")
    here.invalidate("acct_1")
    assert (await here.holding_of("acct_1")).notes
    assert not (await elsewhere.holding_of("acct_1")).notes
    clock.advance(BELIEVED_S)
    assert (await elsewhere.holding_of("acct_1")).notes
    assert not (await elsewhere.holding_of("acct_2")).notes
