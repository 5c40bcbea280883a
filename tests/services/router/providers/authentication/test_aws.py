"""Requests that are signed with keys that expire, and what a refusal of them leads to."""

import math
from collections.abc import Callable

import pytest

from services.chassis.http_client.origin import Origin
from services.router.providers.authentication.aws import SignedRequests, read_keys
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.server_clock import ServerClock
from services.router.providers.authentication.sigv4 import AwsKeys, SigningScope

NOON_S = 1_795_089_600.0
NOON = (b"date", b"Thu, 19 Nov 2026 12:00:00 GMT")
EXPIRED = (b"x-amzn-errortype", b"ExpiredTokenException:http://internal.amazon.com/coral/")
WRONG_TIME = (b"x-amzn-errortype", b"InvalidSignatureException")
DENIED = (b"x-amzn-errortype", b"AccessDeniedException")


def keys_of(numbers: list[int]) -> Callable[[], object]:
    async def obtain() -> Expiring[AwsKeys]:
        numbers.append(len(numbers))
        return Expiring(AwsKeys(f"AKIA{len(numbers)}", "secret", "session"), math.inf)

    return obtain


async def opened(obtained: list[int], now_s: float = NOON_S) -> SignedRequests:
    scope = SigningScope("ca-central-1", "bedrock")
    signed = SignedRequests(keys_of(obtained), scope, Origin("host", 80), clock=ServerClock(lambda: now_s))  # type: ignore[arg-type]
    await signed.ready()
    return signed


async def test_expired_keys_are_renewed() -> None:
    obtained: list[int] = []
    signed = await opened(obtained)
    assert "AKIA1" in signed.headers("/", b"")["authorization"]
    assert await signed.renew(signed.generation, 403, [EXPIRED])
    assert "AKIA2" in signed.headers("/", b"")["authorization"]


@pytest.mark.parametrize(("status", "headers"), [(403, [DENIED]), (403, []), (400, [EXPIRED]), (429, [EXPIRED])])
async def test_other_refusals_renew_nothing(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    obtained: list[int] = []
    signed = await opened(obtained)
    assert not await signed.renew(signed.generation, status, headers)
    assert len(obtained) == 1


async def test_wrong_clock_is_made_up_for_once() -> None:
    obtained: list[int] = []
    signed = await opened(obtained, NOON_S - 3600)
    assert signed.headers("/", b"")["x-amz-date"] == "20261119T110000Z"
    assert await signed.renew(signed.generation, 403, [WRONG_TIME, NOON])
    assert signed.headers("/", b"")["x-amz-date"] == "20261119T120000Z"
    # The signature is refused for another reason.
    assert not await signed.renew(signed.generation, 403, [WRONG_TIME, NOON])
    assert len(obtained) == 1


def test_end_of_keys_is_counted_by_the_clock_of_who_hands_them_out() -> None:
    told = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "2026-11-19T13:00:00Z"}
    keys, lifetime_s, _ = read_keys(told, [NOON])
    assert keys == AwsKeys("A", "s", "t")
    assert lifetime_s == pytest.approx(3600, abs=1)


@pytest.mark.parametrize("missing", ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"])
def test_keys_without_a_part_are_none(missing: str) -> None:
    told = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": "2026-11-19T13:00:00Z"}
    with pytest.raises(CredentialsUnavailable):
        read_keys({**told, missing: None}, [NOON])
