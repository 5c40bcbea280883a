import string

import pytest
from hypothesis import strategies as st

from services.auth.core import key_format
from services.auth.core.key_format import ApiKey
from services.auth.core.peppers import Peppers, StoredDigest, parse_peppers
from services.chassis.settings import SettingsError

LETTERS = string.ascii_letters + string.digits
PEPPER = bytes(range(32))
OTHER_PEPPER = bytes(range(1, 33))

api_keys = st.builds(
    ApiKey,
    public_id=st.text(LETTERS, min_size=16, max_size=16),
    secret=st.text(LETTERS, min_size=33, max_size=33),
)


def test_key_is_recognised_by_its_digest() -> None:
    key, peppers = key_format.mint(), Peppers({1: PEPPER})
    assert peppers.recognise(key, peppers.digest(key))


def test_wrong_secret_is_not_recognised() -> None:
    key, peppers = key_format.mint(), Peppers({1: PEPPER})
    guess = ApiKey(key.public_id, key_format.mint().secret)
    assert not peppers.recognise(guess, peppers.digest(key))


def test_unknown_key_is_not_recognised() -> None:
    assert not Peppers({1: PEPPER}).recognise(key_format.mint(), None)


def test_digest_is_useless_under_another_pepper() -> None:
    key = key_format.mint()
    assert not Peppers({1: OTHER_PEPPER}).recognise(key, Peppers({1: PEPPER}).digest(key))


def test_newest_pepper_makes_digests_and_older_ones_stay_good() -> None:
    key = key_format.mint()
    old = Peppers({1: PEPPER}).digest(key)
    both = Peppers({1: PEPPER, 2: OTHER_PEPPER})
    assert both.recognise(key, old)
    assert both.digest(key).pepper_version == 2
    assert both.digest(key).digest != old.digest


def test_digest_of_a_pepper_that_was_taken_away_is_not_recognised() -> None:
    key = key_format.mint()
    assert not Peppers({2: PEPPER}).recognise(key, StoredDigest(Peppers({1: PEPPER}).digest(key).digest, 1))


def test_digest_key_is_the_account_s_own_and_stays_while_a_newer_pepper_is_brought_in() -> None:
    digest_key = Peppers({1: PEPPER}).digest_key("acct_a")
    assert len(digest_key) == 32
    assert Peppers({1: PEPPER, 2: OTHER_PEPPER}).digest_key("acct_a") == digest_key
    others = {Peppers({1: PEPPER}).digest_key("acct_b"), Peppers({1: OTHER_PEPPER}).digest_key("acct_a")}
    assert len(others | {digest_key}) == 3


def test_what_is_noted_of_peppers_tells_them_apart_and_gives_none_of_them_away() -> None:
    noted = Peppers({2: OTHER_PEPPER, 1: PEPPER}).fingerprints
    assert noted == Peppers({1: PEPPER, 2: OTHER_PEPPER}).fingerprints
    assert noted not in (Peppers({1: PEPPER}).fingerprints, Peppers({1: OTHER_PEPPER, 2: PEPPER}).fingerprints)
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
    assert peppers.agree_with(Peppers(others).fingerprints, 2) is agrees


def test_where_nothing_was_noted_nothing_differs() -> None:
    assert Peppers({1: PEPPER}).agree_with("", 1)


def test_setting_holds_peppers_by_version() -> None:
    peppers = parse_peppers(f"1:{PEPPER.hex()}, 2:{OTHER_PEPPER.hex().upper()}")
    key = key_format.mint()
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
