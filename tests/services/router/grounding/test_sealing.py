"""Texts that open nowhere but where they were sealed, and words that nobody recognises."""

import pytest
from cryptography.exceptions import InvalidTag

from services.router.grounding.sealing import (
    KeyMissing,
    Sealer,
    name_place,
    note_place,
    passage_place,
)

PLACE = note_place("acct_1", "note_1")
OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_text_opens_in_its_place_alone() -> None:
    sealer = Sealer({1: OLD})
    sealed = sealer.seal("My cat is called Mitzi.", PLACE)
    assert b"Mitzi" not in sealed.data
    assert sealer.open(sealed, PLACE) == "My cat is called Mitzi."
    for other in (
        note_place("acct_2", "note_1"),
        note_place("acct_1", "note_2"),
        name_place("acct_1", "note_1"),
        passage_place("acct_1", 1),
    ):
        with pytest.raises(InvalidTag):
            sealer.open(sealed, other)


def test_same_text_is_never_sealed_the_same() -> None:
    sealer = Sealer({1: OLD})
    assert sealer.seal("again", PLACE).data != sealer.seal("again", PLACE).data


def test_newest_key_seals_and_older_ones_still_open_and_find() -> None:
    before, after = Sealer({1: OLD}), Sealer({1: OLD, 2: NEW})
    sealed = before.seal("kept", PLACE)
    assert after.open(sealed, PLACE) == "kept"
    assert after.seal("kept", PLACE).key_version == 2
    [indexed] = before.index_words("acct_1", ["cat"])
    assert after.find_words("acct_1", ["cat"])[indexed] == "cat"
    with pytest.raises(KeyMissing):
        Sealer({2: NEW}).open(sealed, PLACE)


def test_word_has_another_digest_in_each_account() -> None:
    sealer = Sealer({1: OLD})
    assert sealer.index_words("acct_1", ["cat"]) != sealer.index_words("acct_2", ["cat"])
