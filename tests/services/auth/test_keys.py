import math
import string
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.auth import keys
from services.auth.keys import ApiKey, Peppers, StoredDigest, parse_peppers
from services.chassis.settings import SettingsError

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
    assert keys.parse(key.reveal()) == key


@given(api_keys, st.data())
def test_any_one_wrong_character_is_refused(key: ApiKey, data: st.DataObject) -> None:
    text = key.reveal()
    position = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.one_of(st.sampled_from(LETTERS), st.characters()).filter(lambda c: c != text[position]))
    assert keys.parse(text[:position] + character + text[position + 1 :]) is None


def test_every_letter_or_digit_in_every_wrong_place_is_refused() -> None:
    text = keys.mint().reveal()
    for position, right in enumerate(text):
        for wrong in set(LETTERS) - {right}:
            assert keys.parse(text[:position] + wrong + text[position + 1 :]) is None


@given(st.text(max_size=100))
def test_what_is_no_key_is_refused(text: str) -> None:
    assert keys.parse(text) is None


@pytest.mark.parametrize("change", [lambda key: key[:-1], lambda key: key + "0", lambda key: key + "\n", str.upper])
def test_cut_or_lengthened_key_is_refused(change: Callable[[str], str]) -> None:
    assert keys.parse(change(keys.mint().reveal())) is None


def test_key_is_one_run_of_letters_and_digits_behind_its_prefix() -> None:
    text = keys.mint().reveal()
    assert text.startswith("sk-legato-")
    assert text.removeprefix("sk-legato-").isalnum()
    assert text.isascii()


def test_checksum_is_the_crc_of_what_stands_before_it() -> None:
    body, checksum = (text := keys.mint().reveal().removeprefix("sk-legato-"))[:-6], text[-6:]
    value = 0
    for character in checksum:
        value = value * 62 + (string.digits + string.ascii_uppercase + string.ascii_lowercase).index(character)
    assert value == zlib.crc32(body.encode())


def test_secret_cannot_be_guessed() -> None:
    assert keys.SECRET_LENGTH * math.log2(len(set(keys.ALPHABET))) >= 190
    assert len({keys.mint().secret for _ in range(100)}) == 100


def test_key_id_names_the_key_without_its_secret() -> None:
    key = keys.mint()
    assert key.key_id == f"key_{key.public_id}"
    assert key.reveal().startswith(f"sk-legato-{key.public_id}")


def test_key_and_digest_do_not_print_what_is_secret() -> None:
    key = keys.mint()
    stored = Peppers({1: PEPPER}).digest(key)
    assert key.secret not in f"{key} {key!r}"
    assert repr(stored.digest) not in f"{stored} {stored!r}"


def test_key_is_recognised_by_its_digest() -> None:
    key, peppers = keys.mint(), Peppers({1: PEPPER})
    assert peppers.recognise(key, peppers.digest(key))


def test_wrong_secret_is_not_recognised() -> None:
    key, peppers = keys.mint(), Peppers({1: PEPPER})
    guess = ApiKey(key.public_id, keys.mint().secret)
    assert not peppers.recognise(guess, peppers.digest(key))


def test_unknown_key_is_not_recognised() -> None:
    assert not Peppers({1: PEPPER}).recognise(keys.mint(), None)


def test_digest_is_useless_under_another_pepper() -> None:
    key = keys.mint()
    assert not Peppers({1: OTHER_PEPPER}).recognise(key, Peppers({1: PEPPER}).digest(key))


def test_newest_pepper_makes_digests_and_older_ones_stay_good() -> None:
    key = keys.mint()
    old = Peppers({1: PEPPER}).digest(key)
    both = Peppers({1: PEPPER, 2: OTHER_PEPPER})
    assert both.recognise(key, old)
    assert both.digest(key).pepper_version == 2
    assert both.digest(key).digest != old.digest


def test_digest_of_a_pepper_that_was_taken_away_is_not_recognised() -> None:
    key = keys.mint()
    assert not Peppers({2: PEPPER}).recognise(key, StoredDigest(Peppers({1: PEPPER}).digest(key).digest, 1))


def test_digest_key_is_the_account_s_own_and_stays_while_a_newer_pepper_is_brought_in() -> None:
    digest_key = Peppers({1: PEPPER}).digest_key("acct_a")
    assert len(digest_key) == 32
    assert Peppers({1: PEPPER, 2: OTHER_PEPPER}).digest_key("acct_a") == digest_key
    others = {Peppers({1: PEPPER}).digest_key("acct_b"), Peppers({1: OTHER_PEPPER}).digest_key("acct_a")}
    assert len(others | {digest_key}) == 3


def test_what_is_noted_of_peppers_tells_them_apart_and_gives_none_of_them_away() -> None:
    noted = Peppers({2: OTHER_PEPPER, 1: PEPPER}).noted
    assert noted == Peppers({1: PEPPER, 2: OTHER_PEPPER}).noted
    assert noted not in (Peppers({1: PEPPER}).noted, Peppers({1: OTHER_PEPPER, 2: PEPPER}).noted)
    assert [entry.partition(":")[0] for entry in noted.split(",")] == ["1", "2"]
    assert PEPPER.hex()[:8] not in noted
    assert len(noted) < 50


@pytest.mark.parametrize(
    ("others", "agrees"),
    [
        ({1: PEPPER, 2: OTHER_PEPPER}, True),
        # One that is being brought in changes nothing for keys that are there.
        ({1: PEPPER, 2: OTHER_PEPPER, 3: PEPPER}, True),
        ({1: PEPPER}, False),
        # Those would make digest keys of another pepper.
        ({2: OTHER_PEPPER}, False),
        ({1: OTHER_PEPPER, 2: OTHER_PEPPER}, False),
        ({1: PEPPER, 2: PEPPER}, False),
    ],
)
def test_replicas_agree_on_a_key_that_both_have_the_pepper_of(others: dict[int, bytes], agrees: bool) -> None:
    peppers = Peppers({1: PEPPER, 2: OTHER_PEPPER})
    assert peppers.agree_with(Peppers(others).noted, 2) is agrees


def test_where_nobody_has_noted_anything_nobody_disagrees() -> None:
    assert Peppers({1: PEPPER}).agree_with("", 1)


def test_setting_holds_peppers_by_version() -> None:
    peppers = parse_peppers(f"1:{PEPPER.hex()}, 2:{OTHER_PEPPER.hex().upper()}")
    key = keys.mint()
    assert peppers.digest(key) == Peppers({2: OTHER_PEPPER}).digest(key)
    assert peppers.recognise(key, Peppers({1: PEPPER}).digest(key))


@pytest.mark.parametrize(
    ("setting", "mistake"),
    [
        ("", "entry 1 is not VERSION:HEX"),
        ("deadbeef", "entry 1 is not VERSION:HEX"),
        (f"0:{PEPPER.hex()}", "entry 1 is not VERSION:HEX"),
        (f"1:{PEPPER.hex()}f", "entry 1 is not VERSION:HEX"),
        (f"1:{PEPPER.hex()},", "entry 2 is not VERSION:HEX"),
        (f"1:{PEPPER[:31].hex()}", "version 1 has fewer than 32 bytes"),
        (f"1:{PEPPER.hex()},1:{OTHER_PEPPER.hex()}", "version 1 is given twice"),
    ],
)
def test_mistake_in_the_peppers_is_named_without_quoting_them(setting: str, mistake: str) -> None:
    with pytest.raises(SettingsError, match=mistake) as caught:
        parse_peppers(setting)
    assert "LEGATO_KEY_PEPPERS" in str(caught.value)
    assert "deadbeef" not in str(caught.value)
    assert PEPPER[:31].hex() not in str(caught.value)


def test_every_mistake_in_the_peppers_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_peppers("x,1:00")
    assert len(str(caught.value).splitlines()) == 2
