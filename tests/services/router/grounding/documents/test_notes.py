"""Memory: what owners keep, and which of it a chat is given."""

import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.grounding.blocks import NOTES
from services.router.grounding.documents.notes import LONGEST_NOTE, Notes
from services.router.prompts.tokens import count
from tests.services.router.grounding.conftest import ON_EACH_DATABASE
from tests.support.fakes import FakeClock


@ON_EACH_DATABASE
async def test_notes_are_kept_until_they_are_removed_and_belong_to_their_account(notes: Notes) -> None:
    cat = await notes.add("acct_1", " My cat is called Mitzi. ")
    tea = await notes.add("acct_1", "I drink tea.")
    await notes.add("acct_2", "Of another account.")
    assert {note.text for note in await notes.list_of("acct_1")} == {"My cat is called Mitzi.", "I drink tea."}
    for account_id, note_id in (("acct_2", cat.note_id), ("acct_1", "note_none")):
        with pytest.raises(LegatoError) as refusal:
            await notes.remove(account_id, note_id)
        assert refusal.value.reason is Reason.NOT_FOUND
    await notes.remove("acct_1", cat.note_id)
    assert [note.note_id for note in await notes.list_of("acct_1")] == [tea.note_id]


@ON_EACH_DATABASE
async def test_a_note_that_is_changed_keeps_its_place_and_is_counted_anew(notes: Notes, clock: FakeClock) -> None:
    first = await notes.add("acct_1", "I drink tea.")
    clock.advance(1)
    await notes.add("acct_1", "I live in Ottawa.")
    changed = await notes.update("acct_1", first.note_id, " I drink coffee, black and without sugar. ")
    assert (changed.note_id, changed.created_at_us) == (first.note_id, first.created_at_us)
    assert changed.tokens > first.tokens
    texts = [note.text for note in await notes.list_of("acct_1")]
    assert texts == ["I drink coffee, black and without sugar.", "I live in Ottawa."]
    for account_id, note_id, text, reason in (
        ("acct_2", first.note_id, "Mine now.", Reason.NOT_FOUND),
        ("acct_1", "note_none", "x", Reason.NOT_FOUND),
        ("acct_1", first.note_id, " ", Reason.REQUEST_INVALID),
    ):
        with pytest.raises(LegatoError) as refusal:
            await notes.update(account_id, note_id, text)
        assert refusal.value.reason is reason
    assert [note.text for note in await notes.list_of("acct_1")] == texts


@ON_EACH_DATABASE
async def test_all_notes_of_an_account_are_removed_and_none_of_another(notes: Notes) -> None:
    for text in ("I drink tea.", "I live in Ottawa."):
        await notes.add("acct_1", text)
    await notes.add("acct_2", "Of another account.")
    assert await notes.remove("acct_1") == 2
    assert await notes.list_of("acct_1") == []
    assert len(await notes.list_of("acct_2")) == 1
    assert await notes.remove("acct_1") == 0


async def test_all_notes_that_fit_are_given_in_the_order_in_which_they_were_made(
    notes: Notes, clock: FakeClock
) -> None:
    for text in ("I am a vegetarian.", "I live in Ottawa."):
        await notes.add("acct_1", text)
        clock.advance(1)
    for words in ([], ["ottawa"]):
        given, are_all = await notes.relevant("acct_1", words, budget_tokens=100)
        assert [note.text for note in given] == ["I am a vegetarian.", "I live in Ottawa."]
        assert are_all


async def test_of_more_notes_than_fit_those_that_match_are_given_then_the_newest(
    notes: Notes, clock: FakeClock
) -> None:
    made = []
    for number in range(40):
        about = "My parrot is green." if number == 3 else f"Thing {number} is in drawer {number}."
        made.append(await notes.add("acct_1", about))
        clock.advance(1)
    budget_tokens = 5 * max(note.tokens for note in made)
    given, are_all = await notes.relevant("acct_1", ["parrot", "colour"], budget_tokens)
    assert not are_all
    assert count(NOTES.render(given)) <= budget_tokens
    assert given[0].text == "My parrot is green."
    assert given[-1].note_id == made[-1].note_id


async def test_notes_that_grow_when_they_are_made_harmless_are_counted_as_they_are_sent(notes: Notes) -> None:
    for number in range(10):
        await notes.add("acct_1", f'{number}: "<a>", "<b>", "<c>", "<d>"')
    budget_tokens = sum(note.tokens for note in await notes.list_of("acct_1"))
    given, _ = await notes.relevant("acct_1", [], budget_tokens)
    assert 1 <= len(given) < 10
    assert count(NOTES.render(given)) <= budget_tokens


@pytest.mark.parametrize("text", ["", "  \n", "x" * (LONGEST_NOTE + 1)])
async def test_note_that_says_nothing_or_too_much_is_refused(text: str, notes: Notes) -> None:
    with pytest.raises(LegatoError) as refusal:
        await notes.add("acct_1", text)
    assert refusal.value.reason is Reason.REQUEST_INVALID
