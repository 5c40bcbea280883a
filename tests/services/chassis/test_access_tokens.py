from dataclasses import replace

import pytest

from legato_protos.type.v1 import access_token_pb2 as pb
from services.chassis.access_tokens import (
    KNOWN_TOKENS_MOST,
    LIFETIME_US,
    SIGNED_EVERY_US,
    Access,
    AccessTokenSigner,
    AccessTokenVerifier,
    AccountRole,
    expiry_us,
)
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import check_account, rule_of
from services.chassis.settings import SettingsError

SIGNER = AccessTokenSigner("11" * 32)
VERIFIER = AccessTokenVerifier(SIGNER.public_key())
ACCESS = Access("user_a", "ses_a", "acct_a", AccountRole.MEMBER, False, 5, 60_000_000)
LIST_USAGE = "/legato.metering.v1.MeteringService/ListUsage"


def reason_of(token: bytes, now_us: int = 0, verifier: AccessTokenVerifier = VERIFIER) -> Reason:
    with pytest.raises(LegatoError) as caught:
        verifier.verify(token, now_us)
    return caught.value.reason


def test_claims_arrive_as_they_were_signed() -> None:
    assert VERIFIER.verify(SIGNER.sign(ACCESS), ACCESS.expires_at_us - 1) == ACCESS


@pytest.mark.parametrize("now_us", [0, 1, SIGNED_EVERY_US - 1, 7 * SIGNED_EVERY_US, 7 * SIGNED_EVERY_US + 1])
def test_a_token_lives_for_a_minute_at_most(now_us: int) -> None:
    assert LIFETIME_US - SIGNED_EVERY_US < expiry_us(now_us) - now_us <= LIFETIME_US


def test_pages_that_are_opened_one_after_another_have_one_token() -> None:
    signer = AccessTokenSigner("11" * 32)
    tokens = {
        signer.sign(replace(ACCESS, expires_at_us=expiry_us(now_us))) for now_us in range(0, 14_000_000, 1_000_000)
    }
    assert len(tokens) == 1
    assert signer.sign(replace(ACCESS, expires_at_us=expiry_us(SIGNED_EVERY_US))) not in tokens


def test_a_signer_keeps_so_many_tokens() -> None:
    signer = AccessTokenSigner("11" * 32)
    for number in range(KNOWN_TOKENS_MOST + 5):
        signer.sign(replace(ACCESS, authenticated_at_us=number))
    assert signer.sign.cache_info().currsize == KNOWN_TOKENS_MOST


def test_a_token_is_refused_once_it_has_expired() -> None:
    assert reason_of(SIGNER.sign(ACCESS), ACCESS.expires_at_us) is Reason.ACCESS_TOKEN_INVALID


def test_a_token_with_another_signature_is_refused() -> None:
    assert reason_of(AccessTokenSigner("22" * 32).sign(ACCESS)) is Reason.ACCESS_TOKEN_INVALID


def test_claims_that_were_changed_are_refused() -> None:
    token, other = pb.AccessToken.FromString(SIGNER.sign(ACCESS)), SIGNER.sign(replace(ACCESS, user_id="user_b"))
    token.claims = pb.AccessToken.FromString(other).claims
    assert reason_of(token.SerializeToString()) is Reason.ACCESS_TOKEN_INVALID


@pytest.mark.parametrize("token", [b"", b"\xff", b"x" * 3000, pb.AccessToken(claims=b"\xff").SerializeToString()])
def test_what_is_no_token_is_refused(token: bytes) -> None:
    assert reason_of(token) is Reason.ACCESS_TOKEN_INVALID


def test_a_service_without_public_keys_refuses_every_token() -> None:
    assert reason_of(SIGNER.sign(ACCESS), verifier=AccessTokenVerifier("")) is Reason.ACCESS_TOKEN_INVALID


def test_a_new_key_is_accepted_beside_the_old_one() -> None:
    newer = AccessTokenSigner("33" * 32)
    both = AccessTokenVerifier(f"{SIGNER.public_key()}, {newer.public_key()}")
    assert both.verify(newer.sign(ACCESS), 0) == both.verify(SIGNER.sign(ACCESS), 0)


def test_keys_of_another_form_are_refused_without_being_quoted() -> None:
    for make in (AccessTokenSigner, AccessTokenVerifier):
        with pytest.raises(SettingsError) as caught:
            make("not a key")
        assert "not a key" not in str(caught.value)


class Request:
    def __init__(self, account_id: str) -> None:
        self.account_id = account_id


def test_a_token_is_good_for_its_own_account_alone() -> None:
    assert rule_of(LIST_USAGE) is not None
    check_account(ACCESS, LIST_USAGE, Request("acct_a"))
    for account_id in ("acct_b", ""):
        with pytest.raises(LegatoError) as caught:
            check_account(ACCESS, LIST_USAGE, Request(account_id))
        assert caught.value.reason is Reason.ROLE_MISSING


def test_operators_read_the_usage_of_any_account_but_no_notes() -> None:
    operator = replace(ACCESS, is_operator=True)
    check_account(operator, LIST_USAGE, Request("acct_b"))
    with pytest.raises(LegatoError):
        check_account(operator, "/legato.router.v1.GroundingAdminService/ListNotes", Request("acct_b"))
