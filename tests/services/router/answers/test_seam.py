"""The seam of two answers: nothing is repeated and nothing is lost where another model goes on."""

from typing import Any, cast

import pytest

from services.router.answers.relay import Relay
from services.router.answers.seam import Seam
from services.router.providers.base import Piece, ProviderUsage


class TakesAll:
    """A relay that takes everything."""

    def take(self, piece: Piece) -> bool:
        return True

    def take_read(self, read: bytes) -> int:
        return len(read)


def a_seam(said: str, *, repeats: bool = False) -> Seam:
    seam = Seam(cast(Relay, TakesAll()), said)
    if repeats:
        seam.expect_repetition()
    return seam


def joined(seam: Seam, pieces: list[list[str]]) -> list[str]:
    """The texts after the seam."""
    last = len(pieces) - 1
    return [
        "".join(seam.join(Piece(contents=contents, last=number == last)).contents)
        for number, contents in enumerate(pieces)
    ]


@pytest.mark.parametrize(
    ("said", "pieces", "new"),
    [
        ("Once", [[" upon"]], " upon"),
        ("Once ", [[" upon"]], "upon"),
        ("Once ", [["upon"]], "upon"),
        ("Once \n\n", [[" "], ["\n"], ["\n- a"]], "- a"),
        # A model that goes on with other blanks has its own.
        ("Once \n", [[" \t\nupon"]], "\t\nupon"),
        ("Once\n", [["\n", "\n", "upon"]], "\nupon"),
        ("Once\n", [["\n"]], ""),
        ("Once\u00a0", [["\u00a0é"]], "é"),
        (" \n", [[" \nOnce"]], "Once"),
        ("ha ", [[" ha ha"]], "ha ha"),
    ],
)  # fmt: skip
def test_blanks_that_were_delivered_are_not_repeated(said: str, pieces: list[list[str]], new: str) -> None:
    seam = a_seam(said)
    assert said.startswith(seam.prefix)
    assert seam.prefix == seam.prefix.rstrip()
    assert "".join(joined(seam, pieces)) == new


@pytest.mark.parametrize(
    ("pieces", "new"),
    [
        ([["ha ha!"], [" ha"]], [""," ha"]),
        ([["ha"], [" h", "a!"], ["\n"]], ["", "", "\n"]),
        ([["ha ha! \nand"]], ["and"]),
        # One that does not repeat it after all, and one whose answer is but its beginning.
        ([["ha"], [" no"]], ["", "ha no"]),
        ([["ha"], [""]], ["", "ha"]),
    ],
)  # fmt: skip
def test_what_a_server_repeats_is_left_out(pieces: list[list[str]], new: list[str]) -> None:
    blanks = " \n" if new == ["and"] else ""
    assert joined(a_seam("ha ha!" + blanks, repeats=True), pieces) == new


def test_pieces_are_taken_at_once_when_nothing_can_be_repeated_any_more() -> None:
    seam, taken = a_seam("Once "), Piece(contents=[" upon"])
    assert not seam.take(taken)
    assert not seam.take_read(b"read")
    assert seam.join(taken).contents == ["upon"]
    assert seam.take(taken)
    assert seam.take_read(b"read") == 4


def test_usage_is_kept_from_the_answer() -> None:
    seam, usage = a_seam("Once"), ProviderUsage(9, 3, None)
    last: Any = seam.join(Piece(last=True, usage=usage))
    assert last.usage is None
    assert seam.usage is usage
