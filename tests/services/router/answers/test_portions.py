"""Long pieces in portions."""

import msgspec
import pytest

from services.router.answers.portions import PORTION_CHARACTERS, is_long, portions_of
from services.router.answers.toolcalls import ToolCallFragment, ToolCalls
from services.router.providers.base import Piece, ProviderUsage

LONG = "\U0001f3b5 and on " * (PORTION_CHARACTERS // 3)
USAGE = ProviderUsage(1, 2, 3)


def sizes_of(portions: list[Piece]) -> list[int]:
    return [
        sum(map(len, portion.contents))
        + len(portion.hidden)
        + sum(len(fragment.arguments or "") for fragment in portion.tool_calls)
        for portion in portions
    ]


def test_hardly_any_piece_is_long() -> None:
    call = ToolCallFragment(0, "1", "f", "{}")
    piece = Piece(contents=["Hello", " there"], hidden="hm", tool_calls=[call], last=True)
    assert not is_long(piece)
    for long in (Piece(contents=[LONG]), Piece(hidden=LONG), Piece(tool_calls=[ToolCallFragment(arguments=LONG)])):
        assert is_long(long)


def test_long_texts_and_thoughts_are_cut_and_none_is_lost() -> None:
    piece = Piece([LONG, "short", LONG], True, [], LONG, finish_reason="stop", usage=USAGE, last=True)
    portions = list(portions_of(piece))
    assert max(sizes_of(portions)) <= PORTION_CHARACTERS
    assert "".join(portion.hidden for portion in portions) == LONG
    assert "".join(content for portion in portions for content in portion.contents) == LONG + "short" + LONG
    assert all(portion.refuses for portion in portions if portion.contents)
    *others, last = portions
    assert (last.finish_reason, last.usage, last.last) == ("stop", USAGE, True)
    assert all((other.finish_reason, other.usage, other.last) == (None, None, False) for other in others)


def test_many_short_texts_leave_together() -> None:
    piece = Piece(contents=["x" * 1000] * 300)
    *portions, _ = portions_of(piece)
    assert [len(portion.contents) for portion in portions] == [131, 131, 38]


@pytest.mark.parametrize("index", [None, 3])
@pytest.mark.parametrize("as_object", [True, False])
def test_long_arguments_of_calls_are_cut_and_stay_one_call(index: int | None, as_object: bool) -> None:
    value = msgspec.Raw(msgspec.json.encode(LONG))
    text = msgspec.json.encode({"a": value}).decode()
    fragments = [
        ToolCallFragment(index, "1", "f", {"a": value} if as_object else text),
        ToolCallFragment(None if index is None else index + 1, "2", "g", "{}"),
    ]
    portions = list(portions_of(Piece(tool_calls=fragments)))
    assert max(sizes_of(portions)) <= PORTION_CHARACTERS
    calls = ToolCalls()
    deltas = [
        delta for portion in portions for fragment in portion.tool_calls if (delta := calls.add_fragment(fragment))
    ]
    assert [(delta.index, delta.name) for delta in deltas if delta.name] == [(0, "f"), (1, "g")]
    assert "".join(delta.arguments for delta in deltas if not delta.index) == text
