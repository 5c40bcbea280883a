"""Token counts."""

import asyncio
import json
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.prompts import tokens
from services.router.prompts.tokens import SLICE_BYTES, text_slices


def test_known_text_has_its_known_count() -> None:
    assert tokens.count("Hello, world!") == 4


async def count_with_others(slices: Iterable[str]) -> tuple[int, int]:
    """Returns the count, and the turns that others had before it was known."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    counted = await tokens.count_slices(slices)
    other.cancel()
    return counted, turns


async def test_big_texts_are_counted_alike_and_let_others_run() -> None:
    text = "All happy families are alike. " * 20_000
    counted, turns = await count_with_others(tokens.slices_of(text))
    cuts = len(text) // tokens.SLICE_CHARACTERS
    assert abs(counted - tokens.count(text)) <= 2 * cuts
    assert turns >= len(text) // tokens.TURN_CHARACTERS


async def test_many_small_texts_let_others_run_even_if_there_is_nothing_in_them() -> None:
    counted, turns = await count_with_others([""] * 10_000)
    assert turns >= 10_000 * tokens.CHARACTERS_PER_TEXT // tokens.TURN_CHARACTERS
    assert counted == 0


async def test_small_text_is_counted_at_once() -> None:
    assert await count_with_others(tokens.slices_of("Hello, world!")) == (4, 0)


# What may stand at a cut: characters of one to four bytes, escapes of every kind, halves of characters.
_SPELLED = [
    "a",
    " ",
    "é",
    "日",
    "🎵",
    "\\n",
    "\\\\",
    '\\"',
    "\\/",
    "\\u00e9",
    "\\ud83c\\udfb5",
    "\\uD83C\\uDFB5",
    "x" * 300,
]


def slices_of(string_json: bytes) -> list[str]:
    return list(text_slices(msgspec.Raw(string_json)))


@given(shift=st.integers(0, 300), spelled=st.lists(st.sampled_from(_SPELLED), min_size=1, max_size=8))
def test_slices_are_the_text_wherever_they_are_cut(shift: int, spelled: list[str]) -> None:
    unit = "".join(spelled)
    string_json = '"' + "." * shift + unit * (3 * SLICE_BYTES // len(unit)) + '"'
    slices = slices_of(string_json.encode())
    assert "".join(slices) == json.loads(string_json)
    assert all(len(text) <= 2 * SLICE_BYTES for text in slices)
    assert len(slices) > 1


@pytest.mark.parametrize("text", ["", "Hello", 'a "quoted" word', "日本語"])
def test_short_string_is_one_slice(text: str) -> None:
    assert slices_of(json.dumps(text).encode()) == [text]


@pytest.mark.parametrize("wrong", [b"\xff", b'"', b"\\ud83c", b"\\x", b"\n"], ids=repr)
def test_long_string_that_is_none_is_refused(wrong: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        slices_of(b'"' + b"a" * SLICE_BYTES * 2 + wrong + b'a"')
