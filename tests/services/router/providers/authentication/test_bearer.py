"""Access tokens: what is taken for one, and how long it is used."""

import math
from typing import Any

import pytest

from services.router.providers.authentication.bearer import (
    BearerAuthentication,
    check_token,
    lifetime_until,
    read_token,
)
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring
from tests.services.router.providers.authentication.obtaining import PlayedSource


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "two words"},
        {"access_token": "line\r\nHost: elsewhere"},
        {"access_token": "t", "token_type": "mac"},
        {"access_token": "t", "expires_in": 0},
        {"access_token": "t", "expires_in": -5},
        {"access_token": "t", "expires_in": "soon"},
        {"access_token": "t", "expires_in": "nan"},
        {"access_token": "x" * 40_000},
    ],
)
def test_nonsense_is_no_token(told: dict[str, Any]) -> None:
    with pytest.raises(CredentialsUnavailable):
        read_token(told)


@pytest.mark.parametrize(
    ("expires_in", "lifetime_s"), [(3599, 3599), ("3599", 3599), (3599.5, 3599.5), (None, 300), (1e30, 30 * 24 * 3600)]
)
def test_lifetime_is_what_the_server_says_within_reason(expires_in: object, lifetime_s: float) -> None:
    assert read_token({"access_token": "t", "token_type": "bearer", "expires_in": expires_in}) == Expiring(
        "t", lifetime_s
    )


def test_end_is_counted_from_the_servers_time() -> None:
    assert lifetime_until("2026-11-19T13:00:00Z", 1_795_089_600.0) == 3600
    for end in ("2026-11-19T11:00:00Z", "soon", None):
        with pytest.raises(CredentialsUnavailable):
            lifetime_until(end, 1_795_089_600.0)


def test_token_of_many_characters_is_taken() -> None:
    assert check_token("x" * 30_000)


async def test_token_is_sent_as_bearer_and_renewed_when_it_is_refused() -> None:
    source = PlayedSource(math.inf)
    authentication = BearerAuthentication(source.obtain)
    await authentication.ready()
    assert authentication.headers("/", b"") == {"Authorization": "Bearer token-1"}
    # Another key would be forbidden the same.
    assert not await authentication.renew(authentication.generation, 403, [])
    assert await authentication.renew(authentication.generation, 401, [])
    assert authentication.headers("/", b"") == {"Authorization": "Bearer token-2"}
    assert authentication.failure == ""
    await authentication.aclose()
