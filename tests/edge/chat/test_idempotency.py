import asyncio
import hmac
from dataclasses import replace

import pytest

from edge.backends.auth import Principal
from edge.chat import idempotency
from legato_protos.metering.v1.metering_pb2 import IdempotencyClaim
from services.chassis.errors import LegatoError, Reason
from tests.edge.metering_harness import ANN

BODY = b'{"messages":[]}'


def named(*keys: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), *((b"idempotency-key", key) for key in keys), (b"accept", b"*/*")]


def claim_in(headers: list[tuple[bytes, bytes]], body: bytes, principal: Principal) -> IdempotencyClaim | None:
    return asyncio.run(idempotency.claim_in(headers, body, principal))


def claim(key: bytes = b"order 17", body: bytes = BODY, digest_key: bytes = ANN.digest_key) -> IdempotencyClaim:
    claim = claim_in(named(key), body, replace(ANN, digest_key=digest_key))
    assert claim is not None
    return claim


def refusal_of(*keys: bytes) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        claim_in(named(*keys), BODY, ANN)
    return refusal.value


def test_request_without_the_header_claims_nothing() -> None:
    assert claim_in(named(), BODY, ANN) is None


def test_repeat_makes_the_same_claim() -> None:
    assert claim() == claim()
    assert len(claim().key_digest) == len(claim().body_digest) == 32


def test_claim_tells_keys_and_bodies_apart() -> None:
    assert claim(key=b"order 18").key_digest != claim().key_digest
    assert claim(key=b"order 18").body_digest == claim().body_digest
    assert claim(body=BODY + b" ").body_digest != claim().body_digest


def test_claim_says_nothing_without_the_account_s_digest_key() -> None:
    other = claim(digest_key=b"another digest key, of 32 bytes.")
    assert other.key_digest != claim().key_digest
    assert other.body_digest != claim().body_digest


def test_digest_of_a_big_body_is_made_as_that_of_a_small_one() -> None:
    big = BODY.ljust(1024 * 1024)
    assert claim(body=big).body_digest == hmac.digest(ANN.digest_key, big, "sha256")
    assert claim().body_digest == hmac.digest(ANN.digest_key, BODY, "sha256")


@pytest.mark.parametrize("key", [b"a", b"x" * 255, bytes(range(0x20, 0x7F))], ids=["short", "long", "every character"])
def test_key_of_printable_characters_is_taken(key: bytes) -> None:
    assert len(claim(key=key).key_digest) == 32


@pytest.mark.parametrize(
    "keys",
    [[b""], [b"x" * 256], [b"tab\there"], [b"caf\xc3\xa9"], [b"\x7f"], [b"line\n"], [b"order 17", b"order 17"]],
    ids=["empty", "too long", "tab", "not ASCII", "delete", "line", "twice"],
)
def test_key_that_is_none_is_refused_by_the_header_s_name(keys: list[bytes]) -> None:
    refusal = refusal_of(*keys)
    assert (refusal.reason, refusal.param) == (Reason.REQUEST_INVALID, "Idempotency-Key")
    assert not any(key and key.decode("latin-1") in refusal.message for key in keys)


def test_nothing_is_digested_without_a_digest_key() -> None:
    with pytest.raises(LegatoError) as refusal:
        claim_in(named(b"order 17"), BODY, replace(ANN, digest_key=b""))
    assert refusal.value.reason is Reason.UNAVAILABLE
