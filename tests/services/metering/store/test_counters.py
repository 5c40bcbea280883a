"""Counters one by one, and entries that were added to them."""

from services.chassis.database.database import Database
from services.metering.batch import Writer
from services.metering.store.counters import read_entries_since, read_last_entry
from tests.services.metering.samples import ACCOUNT, ask, grant, reserve, settle


async def test_what_came_after_an_entry_is_told_if_that_entry_is_there(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000_000_000))
    with database.transaction(writes=False) as connection:
        granted = read_last_entry(connection, ACCOUNT)
        assert granted is not None
    await ask(writer, reserve(1, prompt=3))
    await ask(writer, settle(1, prompt=3, completion=1))
    with database.transaction(writes=False) as connection:
        last = read_last_entry(connection, ACCOUNT)
        assert last is not None
        assert read_entries_since(connection, ACCOUNT, last, 1) == (last, [])
        since = read_entries_since(connection, ACCOUNT, granted, 1)
        assert since is not None
        assert (since.last, [counter.completion_tokens for counter in since.counters]) == (last, [1])
        # It was recorded at another time; it is not there; there are too many since.
        assert read_entries_since(connection, ACCOUNT, granted._replace(recorded_at_us=1), 1) is None
        assert read_entries_since(connection, ACCOUNT, last._replace(entry_id=last.entry_id + 1), 1) is None
        assert read_entries_since(connection, ACCOUNT, granted, 0) is None
