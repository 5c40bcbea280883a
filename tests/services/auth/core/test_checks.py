import pytest

from services.auth.core import checks
from services.chassis.errors import LegatoError, Reason


def test_name_is_trimmed() -> None:
    assert checks.name("  Müller & Söhne 🎹\n") == "Müller & Söhne 🎹"


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "a\0b", "a\nb", "a\x7fb", "a\u2028b"])
def test_name_that_is_empty_long_or_unprintable_is_refused(name: str) -> None:
    with pytest.raises(LegatoError) as caught:
        checks.name(name)
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, "name")


def test_name_of_a_hundred_characters_is_taken() -> None:
    assert checks.name("ü" * 100) == "ü" * 100


def test_key_may_do_without_a_name() -> None:
    assert checks.key_name("  ") == ""
    assert checks.key_name(" laptop ") == "laptop"


@pytest.mark.parametrize("name", ["mezzo", "forte", "fortissimo"])
def test_class_with_a_model_behind_it_can_be_preferred(name: str) -> None:
    assert checks.preferred_class(name) == name


@pytest.mark.parametrize("name", ["", "auto", "piano", "Forte", "gpt-5"])
def test_other_class_cannot_be_preferred(name: str) -> None:
    with pytest.raises(LegatoError) as caught:
        checks.preferred_class(name)
    assert caught.value.param == "preferred_class"


def test_rate_of_zero_is_the_default() -> None:
    assert checks.limits({"requests_per_minute": 0}) == {"requests_per_minute": None}


LARGEST = [("requests_per_minute", 10**6), ("tokens_per_minute", 10**9), ("concurrent_requests", 10**6)]


@pytest.mark.parametrize(("param", "largest"), LARGEST)
def test_limit_within_bounds_is_taken(param: str, largest: int) -> None:
    assert [checks.limits({param: limit}) for limit in (1, largest)] == [{param: 1}, {param: largest}]


@pytest.mark.parametrize(("param", "largest"), LARGEST)
def test_limit_out_of_bounds_is_refused_and_the_bound_told(param: str, largest: int) -> None:
    for limit in (-1, largest + 1):
        with pytest.raises(LegatoError) as caught:
            checks.limits({param: limit})
        assert caught.value.param == param
        assert f"{largest:,}" in caught.value.message


@pytest.mark.parametrize("id", ["", "acct_\0", "acct_é", "a" * 101, "acct a"])
def test_id_that_we_cannot_have_made_is_not_found(id: str) -> None:
    with pytest.raises(LegatoError) as caught:
        checks.id_of("account", id)
    assert caught.value.reason is Reason.NOT_FOUND
