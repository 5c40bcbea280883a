"""Texts that open nowhere but where they were sealed, and words that cannot be recognised."""

from services.router.grounding.sealing import Sealer

PLACE = ("acct_1", "note", "note_1")
OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_text_opens_in_its_place_alone() -> None:
    unopened: list[str] = []
    sealer = Sealer({1: OLD}, unopened.append)
    sealed = sealer.seal("My cat is called Mitzi.", *PLACE)
    assert b"Mitzi" not in sealed.data
    assert sealer.open(sealed, *PLACE) == "My cat is called Mitzi."
    assert unopened == []
    for other in (("acct_2", "note", "note_1"), ("acct_1", "note", "note_2"), ("acct_1", "name", "note_1")):
        assert sealer.open(sealed, *other) is None
    # The first of each account is told.
    assert unopened == ["acct_2", "acct_1"]


def test_newest_key_seals_and_older_ones_still_open_and_find() -> None:
    before, after = Sealer({1: OLD}), Sealer({1: OLD, 2: NEW})
    sealed = before.seal("kept", *PLACE)
    assert after.open(sealed, *PLACE) == "kept"
    assert after.seal("kept", *PLACE).key_version == 2
    [indexed] = before.index_words("acct_1", ["cat"])
    assert after.find_words("acct_1", ["cat"])[indexed] == "cat"
    assert Sealer({2: NEW}).open(sealed, *PLACE) is None


def test_word_has_another_digest_in_each_account() -> None:
    sealer = Sealer({1: OLD})
    assert sealer.index_words("acct_1", ["cat"]) != sealer.index_words("acct_2", ["cat"])
