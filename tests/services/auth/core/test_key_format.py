import math
import string
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.auth.core import key_format
from services.auth.core.key_format import ApiKey
from services.auth.core.peppers import Peppers

LETTERS = string.ascii_letters + string.digits
PEPPER = bytes(range(32))
OTHER_PEPPER = bytes(range(1, 33))

api_keys = st.builds(
    ApiKey,
    public_id=st.text(LETTERS, min_size=16, max_size=16),
    secret=st.text(LETTERS, min_size=33, max_size=33),
)


@given(api_keys)
def test_key_is_read_as_it_was_written(key: ApiKey) -> None:
    assert key_format.parse(key.reveal()) == key


@given(api_keys, st.data())
def test_any_one_wrong_character_is_refused(key: ApiKey, data: st.DataObject) -> None:
    text = key.reveal()
    position = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.one_of(st.sampled_from(LETTERS), st.characters()).filter(lambda c: c != text[position]))
    assert key_format.parse(text[:position] + character + text[position + 1 :]) is None


def test_every_letter_or_digit_in_every_wrong_place_is_refused() -> None:
    text = key_format.mint().reveal()
    for position, right in enumerate(text):
        for wrong in set(LETTERS) - {right}:
            assert key_format.parse(text[:position] + wrong + text[position + 1 :]) is None


@given(st.text(max_size=100))
def test_what_is_no_key_is_refused(text: str) -> None:
    assert key_format.parse(text) is None


@pytest.mark.parametrize("change", [lambda key: key[:-1], lambda key: key + "0", lambda key: key + "\n", str.upper])
def test_cut_or_lengthened_key_is_refused(change: Callable[[str], str]) -> None:
    assert key_format.parse(change(key_format.mint().reveal())) is None


def test_key_is_one_run_of_letters_and_digits_behind_its_prefix() -> None:
    text = key_format.mint().reveal()
    assert text.startswith("sk-legato-")
    assert text.removeprefix("sk-legato-").isalnum()
    assert text.isascii()


def test_checksum_is_the_crc_of_what_stands_before_it() -> None:
    body, checksum = (text := key_format.mint().reveal().removeprefix("sk-legato-"))[:-6], text[-6:]
    value = 0
    for character in checksum:
        value = value * 62 + (string.digits + string.ascii_uppercase + string.ascii_lowercase).index(character)
    assert value == zlib.crc32(body.encode())


def test_secret_cannot_be_guessed() -> None:
    assert key_format.SECRET_LENGTH * math.log2(len(set(key_format.ALPHABET))) >= 190
    assert len({key_format.mint().secret for _ in range(100)}) == 100


def test_key_id_names_the_key_without_its_secret() -> None:
    key = key_format.mint()
    assert key.key_id == f"key_{key.public_id}"
    assert key.reveal().startswith(f"sk-legato-{key.public_id}")


def test_key_and_digest_do_not_print_what_is_secret() -> None:
    key = key_format.mint()
    stored = Peppers({1: PEPPER}).digest(key)
    assert key.secret not in f"{key} {key!r}"
    assert repr(stored.digest) not in f"{stored} {stored!r}"
