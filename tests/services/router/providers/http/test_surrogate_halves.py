"""Characters that a server has cut in two, between two events."""

import msgspec
import pytest

from services.router.providers.http.surrogate_halves import join_halves


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([r"\ud83d", r"\ude00"], "😀"),
        ([r"a\ud83d", r"\ude00b"], "a😀b"),
        ([r"\uD83D", "", r"\uDE00\ud83d", r"\ude01"], "😀😁"),
        ([r"\ud83d\ude00", r"\u00e9\n\\"], "😀é\n\\"),
        # A backslash that stands for itself, and what only looks like a half.
        ([r"\\ud83d", r"\\ude00"], r"\ud83d\ude00"),
        # The other half never comes.
        ([r"a\ud83d", "b"], "ab"),
        ([r"\ud83d", r"\ud83d", r"\ude00"], "😀"),
    ],
)
def test_halves_are_joined_and_all_else_stays_as_it_is(events: list[str], text: str) -> None:
    first, said = b"", ""
    for event in events:
        joined, first = join_halves(f'"{event}"'.encode(), first)
        said += msgspec.json.decode(joined, type=str)
    assert said == text


def test_second_half_alone_stays_what_it_is() -> None:
    assert join_halves(rb'"\ude00"', b"") == (rb'"\ude00"', b"")
