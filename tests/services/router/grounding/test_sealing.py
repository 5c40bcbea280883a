"""Texts that open nowhere but where they were sealed, and words that cannot be recognised."""

from services.router.grounding.sealing import SealedLocation, Sealer, name_place, note_place, passage_place

PLACE = note_place("acct_1", "note_1")
OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_text_opens_in_its_place_alone() -> None:
    unopened: list[SealedLocation] = []
    sealer = Sealer({1: OLD}, unopened.append)
    sealed = sealer.seal("My cat is called Mitzi.", PLACE)
    assert b"Mitzi" not in sealed.data
    assert sealer.open_if_possible(sealed, PLACE) == "My cat is called Mitzi."
    assert unopened == []
    for other in (
        note_place("acct_2", "note_1"),
        note_place("acct_1", "note_2"),
        name_place("acct_1", "note_1"),
        passage_place("acct_1", 1),
    ):
        assert sealer.open_if_possible(sealed, other) is None
    # The first of each account is told.
    assert [place.account_id for place in unopened] == ["acct_2", "acct_1"]


def test_newest_key_seals_and_older_ones_still_open_and_find() -> None:
    before, after = Sealer({1: OLD}), Sealer({1: OLD, 2: NEW})
    sealed = before.seal("kept", PLACE)
    assert after.open_if_possible(sealed, PLACE) == "kept"
    assert after.seal("kept", PLACE).key_version == 2
    [indexed] = before.index_words("acct_1", ["cat"])
    assert after.find_words("acct_1", ["cat"])[indexed] == "cat"
    assert Sealer({2: NEW}).open_if_possible(sealed, PLACE) is None


def test_word_has_another_digest_in_each_account() -> None:
    sealer = Sealer({1: OLD})
    assert sealer.index_words("acct_1", ["cat"]) != sealer.index_words("acct_2", ["cat"])
