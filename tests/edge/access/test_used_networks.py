"""Which networks are told to auth, and how often."""

import pytest

from edge.access.used_networks import REPORTED_EVERY_S, UsedNetworks
from edge.backends.auth import Principal
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import HttpScope
from tests.support.fakes import FakeClock

KEY = "key_a"


def principal(key_id: str = KEY, token_id: str = "") -> Principal:
    return Principal("acct_a", key_id, frozenset(), None, "forte", None, b"", token_id=token_id)


def scope(address: str | None, forwarded: str = "") -> HttpScope:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    given: HttpScope = {"client": (address, 1234) if address else None, "headers": headers}
    return given


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.77", "203.0.113.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("::ffff:203.0.113.9", "203.0.113.0/24"),
    ],
)
def test_a_network_is_told_once_an_hour(clock: FakeClock, address: str, network: str) -> None:
    networks = UsedNetworks(Addresses(), clock)
    for _ in range(3):
        networks.record(principal(), scope(address))
    networks.record(principal("key_b"), scope(address))
    assert networks.pop(10) == [(KEY, network), ("key_b", network)]
    networks.record(principal(), scope(address))
    assert networks.pop(10) == []
    clock.advance(REPORTED_EVERY_S)
    networks.record(principal(), scope(address))
    assert networks.pop(10) == [(KEY, network)]


def test_addresses_of_one_network_are_one(clock: FakeClock) -> None:
    networks = UsedNetworks(Addresses(), clock)
    for number in range(1, 50):
        networks.record(principal(), scope(f"203.0.113.{number}"))
    assert networks.pop(10) == [(KEY, "203.0.113.0/24")]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", None])
def test_this_machine_is_no_network(clock: FakeClock, address: str | None) -> None:
    networks = UsedNetworks(Addresses(), clock)
    networks.record(principal(), scope(address))
    assert networks.pop(10) == []


def test_a_playground_has_no_networks(clock: FakeClock) -> None:
    networks = UsedNetworks(Addresses(), clock)
    networks.record(principal(token_id="pt_a"), scope("203.0.113.1"))
    assert networks.pop(10) == []


def test_only_a_trusted_proxy_says_where_a_client_is(clock: FakeClock) -> None:
    trusting, other = UsedNetworks(Addresses("10.0.0.0/8"), clock), UsedNetworks(Addresses(), clock)
    for networks in (trusting, other):
        networks.record(principal(), scope("10.1.2.3", "198.51.100.1"))
        networks.record(principal(), scope("10.1.2.3", "203.0.113.1"))
    assert trusting.pop(10) == [(KEY, "198.51.100.0/24"), (KEY, "203.0.113.0/24")]
    assert other.pop(10) == [(KEY, "10.1.2.0/24")]


def test_what_auth_did_not_acknowledge_is_told_again(clock: FakeClock) -> None:
    networks = UsedNetworks(Addresses(), clock)
    networks.record(principal(), scope("203.0.113.1"))
    networks.add(networks.pop(10))
    assert networks.pop(10) == [(KEY, "203.0.113.0/24")]


def test_long_headers_of_proxies_are_not_remembered(clock: FakeClock) -> None:
    networks = UsedNetworks(Addresses("10.0.0.1"), clock)
    for number in range(50):
        networks.record(principal(), scope("10.0.0.1", f"{number}, " * 1_000 + "203.0.113.7"))
    assert networks.pop(10) == [(KEY, "203.0.113.0/24")]
    assert sum(len(header) for _, _, header in networks._seen) < 1_000
