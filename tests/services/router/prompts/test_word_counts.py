"""Texts that are counted by their words have the count of the tokenizer, whatever they are."""

import importlib.util
import os
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.router import native
from services.router.prompts import tokens, word_counts
from services.router.prompts.word_counts import WordCounts

# What decides where the tokenizer splits: letters of all kinds and cases, digits, signs, spaces, breaks, contractions,
# and characters outside of ASCII that are one of these.
_PARTS = [
    *("a", "B", "camelCase", "UPPER", "hello", " the", "self.", "0", "19", "2024", "'", "'s", "'RE", "'ll", "'d", "'x"),
    *(" ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x0c", "\x00", "\x1c", "\x7f", " \n ", "\n    "),
    *(
        ".",
        "/",
        "//",
        "\\",
        '"',
        "({[",
        "--",
        "=====",
        "_",
        "é",
        "É",
        "я",
        "日本",
        "。",
        "\uff0c",
        "한",
        "\u017f",
        "'\u017f",
        "\u0301",
    ),
    *(
        "\u00a0",
        "\u0085",
        "\u3000",
        "\u2028",
        "\u1680",
        "½",
        "٣",
        "Ⅷ",
        "🎵",
        "—",
        "\u2019",
        "ǅ",
        "ʰ",
        "ª",
        "\u200d",
        "K",
    ),
]
_texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(_PARTS), max_size=24).map("".join))


class CountedCalls:
    """The tokenizer, and the texts that it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._count = tokens.tokenizer()

    def __call__(self, text: str) -> int:
        self.texts.append(text)
        return self._count(text)


words = WordCounts(tokens.tokenizer(), os.urandom(16))


@given(text=_texts, other=_texts)
@example(text="é.\n//x", other="")
@example(text="日。\n\u3000\n本", other="")
@example(text="don'\u017f", other="")
def test_count_is_the_tokenizers(text: str, other: str) -> None:
    count = tokens.tokenizer()
    for whole in (text, other, text + other):
        # Once by the tokenizer, and once as it is remembered.
        assert words.count(whole) == count(whole), whole
        assert words.count(whole) == count(whole), whole


def test_word_is_given_to_the_tokenizer_once() -> None:
    asked = CountedCalls()
    counts = WordCounts(asked, os.urandom(16))
    counts.count("to be or not to be, said the bee")
    assert asked.texts == ["to", " be", " or", " not", " to", ",", " said", " the", " bee"]
    asked.texts.clear()
    counts.count(" not the bee,")
    assert asked.texts == []


def test_words_that_push_each_other_out_are_counted_again() -> None:
    counts = WordCounts(tokens.tokenizer(), os.urandom(16))
    for begin in range(0, 300_000, 1000):
        text = " ".join(f"x{number:06d}" for number in range(begin, begin + 1000))
        assert counts.count(text) == tokens.tokenizer()(text)


def test_long_words_are_not_remembered() -> None:
    asked = CountedCalls()
    counts = WordCounts(asked, os.urandom(16))
    word = "x" * 5000
    assert counts.count(word) == counts.count(word) == tokens.tokenizer()(word)
    assert asked.texts == [word, word]


@pytest.mark.parametrize("key", [b"", b"too short", b"seventeen bytes!!"])
def test_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        WordCounts(len, key)


def test_failure_of_the_tokenizer_is_raised() -> None:
    def fail(_: str) -> int:
        raise MemoryError

    with pytest.raises(MemoryError):
        WordCounts(fail, os.urandom(16)).count("word")
    with pytest.raises(UnicodeEncodeError):
        words.count("\ud800")


def test_what_was_compiled_is_used() -> None:
    assert WordCounts is native.WordCounts


def test_without_it_the_tokenizer_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "services.router.native", None)
    spec = importlib.util.find_spec(word_counts.__name__)
    assert spec is not None
    assert spec.loader is not None
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    asked = CountedCalls()
    counts = without.WordCounts(asked, os.urandom(16))
    assert counts.count("twice ") == counts.count("twice ")
    assert asked.texts == ["twice ", "twice "]
