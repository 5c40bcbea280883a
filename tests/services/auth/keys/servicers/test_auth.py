"""Keys' rights and what is told of them, on a real server and on both databases."""

from datetime import timedelta

import pytest

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core import key_format
from services.auth.core.key_format import ApiKey
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.client import DAY_S, AuthClient, refusal_of
from tests.services.auth.conftest import FakeSleep
from tests.support.fakes import FakeClock


async def test_key_opens_everything_unless_it_was_restricted(client: AuthClient) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    principal = (await client.verify(created.api_key)).principal
    assert principal == pb.Principal(
        account_id=account.account_id,
        key_id=created.key.key_id,
        preferred_class="forte",
        digest_key=principal.digest_key,
        search=True,
        memory=True,
        attachments=True,
    )
    assert created.key.state == pb.KEY_STATE_ACTIVE
    assert not created.key.HasField("expire_time")


async def test_principal_carries_scopes_expiry_class_and_rate(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    created = await client.create_key(
        account.account_id, scopes=[pb.SCOPE_USAGE, pb.SCOPE_MODELS], expires_after_days=90
    )
    await client.update_account(
        pb.UpdateAccountRequest(account_id=account.account_id, preferred_class="fortissimo", requests_per_minute=120)
    )
    principal = (await client.verify(created.api_key)).principal
    assert set(principal.scopes) == {pb.SCOPE_MODELS, pb.SCOPE_USAGE}
    assert principal.expire_time.ToDatetime(clock.now().tzinfo) == clock.now() + timedelta(days=90)
    assert (principal.preferred_class, principal.requests_per_minute) == ("fortissimo", 120)


async def test_grounding_that_an_account_switches_off_stays_off_until_it_is_switched_on(client: AuthClient) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    for given, on in (
        ({"search": False, "memory": False}, ["attachments"]),
        ({"preferred_class": "mezzo"}, ["attachments"]),
        ({"memory": True}, ["memory", "attachments"]),
    ):
        request = pb.UpdateAccountRequest(account_id=account.account_id, **given)
        updated = await client.update_account(request)
        principal = (await client.verify(created.api_key)).principal
        for answered in (updated, principal):
            assert [name for name in ("search", "memory", "attachments") if getattr(answered, name)] == on


async def test_all_keys_of_an_account_share_a_digest_key_that_no_other_account_has(client: AuthClient) -> None:
    digest_keys = []
    for name in ("Acme", "Acme", "Bolt"):
        account = await client.create_account(name)
        keys_of_account = [await client.create_key(account.account_id) for _ in range(2)]
        principals = [(await client.verify(created.api_key)).principal for created in keys_of_account]
        assert principals[0].digest_key == principals[1].digest_key
        digest_keys.append(principals[0].digest_key)
    assert len(set(digest_keys)) == 3
    assert {len(digest_key) for digest_key in digest_keys} == {32}


async def test_unknown_malformed_guessed_revoked_and_expired_keys_are_answered_alike(
    client: AuthClient, clock: FakeClock
) -> None:
    account = await client.create_account()
    good = await client.create_key(account.account_id)
    revoked = await client.create_key(account.account_id)
    await client.revoke_key(revoked.key.key_id)
    expired = await client.create_key(account.account_id, expires_after_days=30)
    clock.advance(30 * DAY_S)
    guessed = ApiKey(good.key.key_id.removeprefix("key_"), key_format.mint().secret).reveal()
    bad = [
        "",
        "Bearer",
        good.api_key[:-1],
        "sk-legato-\0",
        key_format.mint().reveal(),
        guessed,
        revoked.api_key,
        expired.api_key,
    ]
    refusals = [await refusal_of(client, api_key) for api_key in bad]
    assert {(refusal.reason, refusal.message, refusal.param, refusal.retry_after_s) for refusal in refusals} == {
        (Reason.KEY_INVALID, "This API key is not valid.", None, None)
    }
    assert (await client.verify(good.api_key)).principal.key_id == good.key.key_id


async def test_key_works_until_the_moment_it_expires(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id, expires_after_days=30)
    clock.advance(30 * DAY_S - 0.001)
    await client.verify(created.api_key)
    clock.advance(0.001)
    await refusal_of(client, created.api_key)


async def test_key_without_expiry_never_expires(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    clock.advance(20 * 365 * DAY_S)
    await client.verify(created.api_key)


async def test_verification_tells_the_epoch_that_a_revocation_raises(client: AuthClient) -> None:
    account = await client.create_account()
    kept, revoked = [await client.create_key(account.account_id) for _ in range(2)]
    before = (await client.verify(kept.api_key)).epoch
    await client.revoke_key(revoked.key.key_id)
    assert (await client.verify(kept.api_key)).epoch == before + 1


async def test_keys_of_a_suspended_account_are_refused_as_such_until_it_is_resumed(
    client: AuthClient, sleep: FakeSleep, clock: FakeClock
) -> None:
    account, other = await client.create_account(), await client.create_account()
    created, others = await client.create_key(account.account_id), await client.create_key(other.account_id)
    suspended = await client.suspend(account.account_id)
    assert suspended.suspend_time.ToDatetime(clock.now().tzinfo) == clock.now()
    refusal = await refusal_of(client, created.api_key)
    assert (refusal.reason, refusal.message) == (Reason.ACCOUNT_SUSPENDED, "This account is suspended.")
    await client.verify(others.api_key)
    clock.advance(60)
    assert await client.suspend(account.account_id) == suspended
    assert not (await client.resume(account.account_id)).HasField("suspend_time")
    assert not (await client.resume(account.account_id)).HasField("suspend_time")
    assert (await client.verify(created.api_key)).principal.key_id == created.key.key_id
    # Also where there was nothing to change.
    assert sleep.waits_s == [0.85] * 4


async def test_suspension_is_told_only_to_the_holder_of_a_good_key(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    good, revoked = [await client.create_key(account.account_id) for _ in range(2)]
    expired = await client.create_key(account.account_id, expires_after_days=30)
    clock.advance(30 * DAY_S)
    await client.revoke_key(revoked.key.key_id)
    await client.suspend(account.account_id)
    guessed = ApiKey(good.key.key_id.removeprefix("key_"), key_format.mint().secret).reveal()
    for api_key in (guessed, revoked.api_key, expired.api_key):
        assert (await refusal_of(client, api_key)).reason is Reason.KEY_INVALID
    assert (await refusal_of(client, good.api_key)).reason is Reason.ACCOUNT_SUSPENDED


async def test_key_has_its_own_limits_or_else_those_of_its_account(client: AuthClient, sleep: FakeSleep) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    request = pb.UpdateAccountRequest(account_id=account.account_id, requests_per_minute=10, tokens_per_minute=20)
    updated = await client.update_account(request)
    assert (updated.requests_per_minute, updated.tokens_per_minute) == (10, 20)
    assert not updated.HasField("concurrent_requests")
    request_of_key = pb.UpdateKeyRequest(key_id=created.key.key_id, tokens_per_minute=2, concurrent_requests=3)
    key = await client.update_key(request_of_key)
    assert (key.tokens_per_minute, key.concurrent_requests) == (2, 3)
    assert not key.HasField("requests_per_minute")
    principal = (await client.verify(created.api_key)).principal
    limits = (principal.requests_per_minute, principal.tokens_per_minute, principal.concurrent_requests)
    assert limits == (10, 2, 3)
    key = await client.update_key(
        pb.UpdateKeyRequest(key_id=created.key.key_id, tokens_per_minute=0, concurrent_requests=0)
    )
    assert not key.HasField("tokens_per_minute")
    principal = (await client.verify(created.api_key)).principal
    assert (principal.requests_per_minute, principal.tokens_per_minute) == (10, 20)
    assert not principal.HasField("concurrent_requests")
    assert sleep.waits_s == [0.85] * 3


async def test_keys_that_are_no_longer_good_are_found(client: AuthClient) -> None:
    account, suspended = await client.create_account(), await client.create_account()
    good, revoked = [(await client.create_key(account.account_id)).key.key_id for _ in range(2)]
    waiting = (await client.create_key(suspended.account_id)).key.key_id
    await client.revoke_key(revoked)
    await client.suspend(suspended.account_id)
    asked = (good, revoked, waiting, "key_unknown", "key_\0", good)
    assert set(await client.find_refused(*asked)) == {revoked, waiting, "key_unknown", "key_\0"}
    assert await client.find_refused() == []
    with pytest.raises(LegatoError) as caught:
        await client.find_refused(*(f"key_{number}" for number in range(1_001)))
    assert caught.value.param == "key_ids"
