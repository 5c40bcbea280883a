"""Whose address counts, whatever a client says about itself."""

from typing import Any

import pytest

from services.chassis.http.addresses import Addresses
from services.chassis.settings import SettingsError


def scope(client: str | None, *forwarded: str) -> dict[str, Any]:
    return {
        "client": (client, 40000) if client else None,
        "headers": [(b"x-forwarded-for", value.encode()) for value in forwarded],
    }


def test_what_a_client_says_about_itself_does_not_count() -> None:
    assert str(Addresses().of(scope("203.0.113.7", "198.51.100.1"))) == "203.0.113.7"
    assert str(Addresses("10.0.0.0/8").of(scope("203.0.113.7", "198.51.100.1"))) == "203.0.113.7"


def test_what_a_proxy_of_ours_says_counts() -> None:
    assert str(Addresses("10.0.0.0/8").of(scope("10.1.2.3", "198.51.100.1"))) == "198.51.100.1"


@pytest.mark.parametrize(
    "forwarded",
    [["9.9.9.9, 198.51.100.1"], ["9.9.9.9", "198.51.100.1"], ["9.9.9.9, 198.51.100.1, 10.7.7.7"]],
)
def test_of_several_the_last_that_is_not_ours_counts(forwarded: list[str]) -> None:
    assert str(Addresses("10.0.0.0/8").of(scope("10.1.2.3", *forwarded))) == "198.51.100.1"


@pytest.mark.parametrize("forwarded", [[], [""], ["unknown"], ["9.9.9.9, not an address"]])
def test_proxy_that_says_nothing_of_use_counts_itself(forwarded: list[str]) -> None:
    assert str(Addresses("10.0.0.0/8").of(scope("10.1.2.3", *forwarded))) == "10.1.2.3"


def test_client_without_an_address_has_none() -> None:
    assert Addresses("10.0.0.0/8").of(scope(None, "198.51.100.1")) is None


def test_address_is_the_same_in_either_notation() -> None:
    assert Addresses().of(scope("::ffff:203.0.113.7")) == Addresses().of(scope("203.0.113.7"))


def test_proxies_that_are_no_addresses_are_named_at_start() -> None:
    with pytest.raises(SettingsError, match=r"LEGATO_TRUSTED_PROXIES: localhost"):
        Addresses("10.0.0.1, localhost")
