"""Every RPC on a real server, on both databases."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import pytest
from google.protobuf.message import Message

from protos.auth.v1 import auth_pb2 as pb
from services.auth import keys
from services.auth.keys import ApiKey
from services.chassis.channel import errors_of
from services.chassis.errors import LegatoError, Reason
from tests.fakes import FakeClock
from tests.services.auth.client import AuthClient
from tests.services.auth.conftest import FakeSleep

DAY_S = 24 * 60 * 60


async def refusal_of(client: AuthClient, api_key: str) -> LegatoError:
    with pytest.raises(LegatoError) as caught:
        await client.verify(api_key)
    return caught.value


async def test_new_account_prefers_forte_and_has_no_rate_of_its_own(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account("  Acme  ")
    assert account.account_id.startswith("acct_")
    assert len(account.account_id) == len("acct_") + 16
    assert account.account_id == account.account_id.lower()
    assert (account.name, account.preferred_class) == ("Acme", "forte")
    assert not account.HasField("requests_per_minute")
    assert account.create_time.ToDatetime(clock.now().tzinfo) == clock.now()
    with errors_of("auth"):
        found = await client.accounts.GetAccount(pb.GetAccountRequest(account_id=account.account_id))
    assert found.account == account


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
    guessed = ApiKey(good.key.key_id.removeprefix("key_"), keys.mint().secret).reveal()
    bad = [
        "",
        "Bearer",
        good.api_key[:-1],
        "sk-legato-\0",
        keys.mint().reveal(),
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


async def test_revocation_is_committed_and_then_waits_until_it_holds_everywhere(
    client: AuthClient, sleep: FakeSleep
) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    sleep.hold()
    revoking = asyncio.ensure_future(client.revoke_key(created.key.key_id))
    await sleep.wait_until_asked()
    await refusal_of(client, created.api_key)
    assert not revoking.done()
    assert sleep.waits_s == [0.85]
    sleep.let_go()
    assert (await revoking).state == pb.KEY_STATE_REVOKED


async def test_revocation_holds_though_its_caller_left(client: AuthClient, sleep: FakeSleep) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    sleep.hold()
    call = client.keys.RevokeKey(pb.RevokeKeyRequest(key_id=created.key.key_id))
    await sleep.wait_until_asked()
    call.cancel()
    await refusal_of(client, created.api_key)


async def test_key_can_be_revoked_twice_and_each_waits(client: AuthClient, sleep: FakeSleep, clock: FakeClock) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    first = await client.revoke_key(created.key.key_id)
    clock.advance(60)
    assert await client.revoke_key(created.key.key_id) == first
    assert sleep.waits_s == [0.85, 0.85]


async def test_change_of_an_account_is_seen_at_once_and_waits_until_it_holds_everywhere(
    client: AuthClient, sleep: FakeSleep
) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    sleep.hold()
    updating = asyncio.ensure_future(
        client.update_account(pb.UpdateAccountRequest(account_id=account.account_id, preferred_class="mezzo"))
    )
    await sleep.wait_until_asked()
    assert (await client.verify(created.api_key)).principal.preferred_class == "mezzo"
    assert not updating.done()
    sleep.let_go()
    assert (await updating).preferred_class == "mezzo"
    assert sleep.waits_s == [0.85]


async def test_new_key_and_new_account_wait_for_nothing(client: AuthClient, sleep: FakeSleep) -> None:
    account = await client.create_account()
    await client.create_key(account.account_id)
    assert sleep.waits_s == []


async def test_update_leaves_what_it_does_not_name_and_zero_goes_back_to_the_default(client: AuthClient) -> None:
    account = await client.create_account()
    request = pb.UpdateAccountRequest(account_id=account.account_id)
    request.requests_per_minute = 5
    assert (await client.update_account(request)).requests_per_minute == 5
    request = pb.UpdateAccountRequest(account_id=account.account_id, preferred_class="mezzo")
    both = await client.update_account(request)
    assert (both.preferred_class, both.requests_per_minute) == ("mezzo", 5)
    request = pb.UpdateAccountRequest(account_id=account.account_id, requests_per_minute=0)
    default = await client.update_account(request)
    assert default.preferred_class == "mezzo"
    assert not default.HasField("requests_per_minute")


async def test_keys_are_listed_oldest_first_with_their_states(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    names = ["active", "expired", "revoked", "revoked and expired"]
    created = []
    for name in names:
        clock.advance(1)
        days = 30 if "expired" in name else None
        created.append((await client.create_key(account.account_id, name, expires_after_days=days)).key)
    for key in created[2:]:
        await client.revoke_key(key.key_id)
    clock.advance(31 * DAY_S)
    with errors_of("auth"):
        listed = (await client.keys.ListKeys(pb.ListKeysRequest(account_id=account.account_id))).keys
    assert [key.name for key in listed] == names
    assert [key.state for key in listed] == [
        pb.KEY_STATE_ACTIVE,
        pb.KEY_STATE_EXPIRED,
        pb.KEY_STATE_REVOKED,
        pb.KEY_STATE_REVOKED,
    ]


async def test_pages_follow_each_other_without_gap_or_overlap(client: AuthClient) -> None:
    account = await client.create_account()
    # All at one moment of the fake clock: the order must not depend on time alone.
    key_ids = {(await client.create_key(account.account_id)).key.key_id for _ in range(7)}
    pages: list[list[str]] = []
    request = pb.ListKeysRequest(account_id=account.account_id, page_size=3)
    with errors_of("auth"):
        while True:
            page = await client.keys.ListKeys(request)
            pages.append([key.key_id for key in page.keys])
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    assert [len(page) for page in pages] == [3, 3, 1]
    assert {key_id for page in pages for key_id in page} == key_ids


async def test_page_that_is_just_full_is_the_last(client: AuthClient, clock: FakeClock) -> None:
    for name in ("first", "second"):
        clock.advance(1)
        await client.create_account(name)
    with errors_of("auth"):
        page = await client.accounts.ListAccounts(pb.ListAccountsRequest(page_size=2))
        assert ([account.name for account in page.accounts], page.next_page_token) == (["first", "second"], "")
        first = await client.accounts.ListAccounts(pb.ListAccountsRequest(page_size=1))
        rest = await client.accounts.ListAccounts(pb.ListAccountsRequest(page_token=first.next_page_token))
    assert [account.name for account in rest.accounts] == ["second"]


@pytest.mark.parametrize("id_suffix", ["aaaaaaaaaaaaaaaa", "\0", ""])
async def test_unknown_ids_are_not_found(client: AuthClient, id_suffix: str) -> None:
    account_id, key_id = f"acct_{id_suffix}", f"key_{id_suffix}"
    asked: list[Awaitable[Message]] = [
        client.accounts.GetAccount(pb.GetAccountRequest(account_id=account_id)),
        client.accounts.UpdateAccount(pb.UpdateAccountRequest(account_id=account_id, preferred_class="mezzo")),
        client.keys.CreateKey(pb.CreateKeyRequest(account_id=account_id, name="laptop")),
        client.keys.ListKeys(pb.ListKeysRequest(account_id=account_id)),
        client.accounts.SuspendAccount(pb.SuspendAccountRequest(account_id=account_id)),
        client.accounts.ResumeAccount(pb.ResumeAccountRequest(account_id=account_id)),
        client.keys.UpdateKey(pb.UpdateKeyRequest(key_id=key_id, requests_per_minute=1)),
        client.keys.RevokeKey(pb.RevokeKeyRequest(key_id=key_id)),
    ]
    for call in asked:
        with pytest.raises(LegatoError) as caught, errors_of("auth"):
            await call
        assert caught.value.reason is Reason.NOT_FOUND


@pytest.mark.parametrize(
    ("param", "scopes", "days", "name"),
    [
        ("name", [], None, "a\nb"),
        ("name", [], None, "x" * 101),
        ("scopes", [pb.SCOPE_UNSPECIFIED], None, "laptop"),
        ("scopes", [pb.SCOPE_MODELS, 99], None, "laptop"),
        ("expires_after_days", [], 0, "laptop"),
        ("expires_after_days", [], 31, "laptop"),
    ],
)
async def test_key_that_cannot_be_made_is_refused_with_the_field_that_is_wrong(
    client: AuthClient, param: str, scopes: list[pb.Scope.ValueType], days: int | None, name: str
) -> None:
    account = await client.create_account()
    with pytest.raises(LegatoError) as caught:
        await client.create_key(account.account_id, name, scopes, days)
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, param)


async def test_update_that_cannot_be_made_changes_nothing(client: AuthClient) -> None:
    account = await client.create_account()
    request = pb.UpdateAccountRequest(
        account_id=account.account_id, preferred_class="mezzo", requests_per_minute=1_000_001
    )
    with pytest.raises(LegatoError) as caught:
        await client.update_account(request)
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, "requests_per_minute")
    with errors_of("auth"):
        found = await client.accounts.GetAccount(pb.GetAccountRequest(account_id=account.account_id))
    assert found.account == account


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


async def test_suspension_is_told_to_nobody_but_the_holder_of_a_good_key(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    good, revoked = [await client.create_key(account.account_id) for _ in range(2)]
    expired = await client.create_key(account.account_id, expires_after_days=30)
    clock.advance(30 * DAY_S)
    await client.revoke_key(revoked.key.key_id)
    await client.suspend(account.account_id)
    guessed = ApiKey(good.key.key_id.removeprefix("key_"), keys.mint().secret).reveal()
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


@pytest.mark.parametrize("param", ["requests_per_minute", "tokens_per_minute", "concurrent_requests"])
async def test_limit_that_cannot_be_is_refused_by_name(client: AuthClient, param: str) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    limits: dict[str, int] = {param: -1}
    with pytest.raises(LegatoError) as caught:
        await client.update_key(pb.UpdateKeyRequest(key_id=created.key.key_id, **limits))
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, param)


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


async def test_keys_are_counted_by_pepper(client: AuthClient) -> None:
    account = await client.create_account()
    created = [await client.create_key(account.account_id) for _ in range(3)]
    assert {one.key.pepper_version for one in created} == {1}
    await client.revoke_key(created[0].key.key_id)
    response = await client.keys.CountKeysByPepper(pb.CountKeysByPepperRequest())
    assert list(response.counts) == [pb.PepperCount(pepper_version=1, keys=2)]
