"""Accounts that keep nothing cost next to nothing."""

import asyncio

from services.chassis.database.database import Database
from services.router.grounding.holdings import BELIEVED_S, Holding, Holdings
from services.router.grounding.notes import Notes
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.support.fakes import FakeClock


class Counting(Database):
    reads = 0

    async def read(self, look):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await super().read(look)


async def test_database_is_asked_once_for_many_chats_of_an_account(
    database_url: str, database: Database, clock: FakeClock
) -> None:
    counting = Counting(database_url, "router")
    holdings = Holdings(counting, clock)
    for _ in range(100):
        assert await holdings.of("acct_1") == Holding(notes=False, attachments=False)
    assert counting.reads == 1
    counting.close()


@ON_EACH_DATABASE
async def test_first_note_counts_at_once_here_and_soon_elsewhere(
    database: Database, notes: Notes, clock: FakeClock
) -> None:
    here, elsewhere = Holdings(database, clock), Holdings(database, clock)
    await asyncio.gather(here.of("acct_1"), elsewhere.of("acct_1"))
    await notes.add("acct_1", "I drink tea.")
    here.look_again("acct_1")
    assert (await here.of("acct_1")).notes
    assert not (await elsewhere.of("acct_1")).notes
    clock.advance(BELIEVED_S)
    assert (await elsewhere.of("acct_1")).notes
    assert not (await elsewhere.of("acct_2")).notes
