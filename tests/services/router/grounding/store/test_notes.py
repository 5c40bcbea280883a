"""Notes whose rows were changed by other hands."""

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.router.grounding.documents.notes import Notes


async def test_note_that_was_moved_to_another_account_does_not_open_there(notes: Notes, database: Database) -> None:
    await notes.add("acct_1", "Mine.")
    await database.write(lambda connection: connection.execute(sa.text("UPDATE notes SET account_id = 'acct_2'")))
    await notes.add("acct_2", "Yours.")
    assert sorted(note.text for note in await notes.list_of("acct_2")) == ["", "Yours."]
    assert [note.text for note in (await notes.relevant("acct_2", [], 100))[0]] == ["Yours."]
    assert await notes.relevant("acct_1", [], 100) == ([], True)


@pytest.mark.parametrize("data", [b"", b"x", bytes(60)])
async def test_note_that_was_changed_takes_no_other_with_it_and_can_be_removed(
    data: bytes, notes: Notes, database: Database
) -> None:
    changed = await notes.add("acct_1", "I live in Ottawa.")
    await notes.add("acct_1", "I drink tea.")
    change = sa.text("UPDATE notes SET sealed_text = :data WHERE note_id = :note_id")
    values = {"data": data, "note_id": changed.note_id}
    await database.write(lambda connection: connection.execute(change, values))
    assert [note.text for note in (await notes.relevant("acct_1", [], 100))[0]] == ["I drink tea."]
    [without_text] = [note.note_id for note in await notes.list_of("acct_1") if not note.text]
    await notes.remove("acct_1", without_text)
    assert [note.text for note in await notes.list_of("acct_1")] == ["I drink tea."]
