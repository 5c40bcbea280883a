"""The count of a streamed text, in Python and compiled."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.router import native
from services.router.prompts import tokens
from services.router.prompts.running_count import (
    LONGEST_WORD_CHARACTERS,
    SHORT_WORD_CHARACTERS,
    PythonRunningCount,
)

CountType = type[PythonRunningCount] | type[native.RunningCount]
both = pytest.mark.parametrize("count_type", [PythonRunningCount, native.RunningCount], ids=["python", "compiled"])

_texts = st.lists(
    st.sampled_from(
        [
            "hello",
            "World",
            " ",
            "\n",
            "  ",
            "don't",
            "\u4e2d\u6587",
            "12345",
            "!!",
            "a/b\n",
            "\U0001f3b5",
            "\t",
            "\u00a0",
            "xY9z",
            "\uff0c",
            "\u3042\u3002",
            "e\u0301",
        ]
    )
).map("".join)


def longest_word(text: str) -> int:
    """Returns its length; a word has the space before it."""
    return max(map(len, re.split(r"(?<=\S)(?= )", text)))


@both
@given(text=_texts, data=st.data())
def test_count_does_not_depend_on_where_the_network_cuts(count_type: CountType, text: str, data: st.DataObject) -> None:
    # A longer one is counted in parts, and where it happens to be cut may make a difference.
    assume(longest_word(text) <= LONGEST_WORD_CHARACTERS)
    running = count_type(tokens.counter())
    rest = text
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        running.add(rest[:cut])
        rest = rest[cut:]
    assert running.tokens == tokens.count(text)


@both
@pytest.mark.parametrize("piece", ["q7Zk9", "0x1f", "camelCase", "\u3053\u3093\u306b\u3061\u306f\u3002"])
def test_long_word_is_counted_again_only_from_its_last_part_on(count_type: CountType, piece: str) -> None:
    running = count_type(tokens.counter())
    for _ in range(50):
        running.add(piece)
        assert len(running.word) <= SHORT_WORD_CHARACTERS + len(piece)
    assert running.tokens == tokens.count(50 * piece)


@both
def test_text_without_spaces_is_counted_in_bounded_parts(count_type: CountType) -> None:
    running = count_type(tokens.counter())
    for _ in range(5_000):
        running.add("\u4e2d\u6587")
    assert len(running.word) <= LONGEST_WORD_CHARACTERS + 2
    assert running.tokens >= 5_000


@both
def test_copy_goes_on_by_itself(count_type: CountType) -> None:
    running = count_type(tokens.counter())
    running.add("hello wor")
    copy = running.copy()
    assert (copy.add("ld"), copy.tokens) == (0, 2)
    assert (running.add("k and"), running.tokens) == (1, 3)


@both
def test_failure_to_count_is_raised_and_changes_nothing(count_type: CountType) -> None:
    def count(text: str) -> int:
        if "!" in text:
            raise ValueError(text)
        return len(text)

    for piece in ("!", " three !", "! four"):
        running = count_type(count)
        running.add("one two")
        with pytest.raises(ValueError, match="!"):
            running.add(piece)
        assert running.tokens == len("one two")
        running.add(" more")
        assert running.tokens == len("one two more")


_characters = st.sampled_from("abXY09 \n\t'-.,/\u3042\u4e2d\u30fb\u3002\uff0c\u3007\u0301\u00e9\u00b2\U0001f3b5")


@given(st.lists(st.text(_characters, max_size=20), max_size=12))
def test_both_count_alike_with_any_tokenizer(pieces: list[str]) -> None:
    in_python, compiled = PythonRunningCount(len), native.RunningCount(len)
    for piece in pieces:
        assert in_python.add(piece) == compiled.add(piece)
        assert (in_python.word, in_python.tokens) == (compiled.word, compiled.tokens)
