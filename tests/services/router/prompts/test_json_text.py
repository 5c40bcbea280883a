"""The text of a long JSON string, slice by slice."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.prompts.json_text import SLICE_BYTES, text_slices

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
