"""Operators' work on accounts and keys, on a real server and on both databases."""

import asyncio
from collections.abc import Awaitable

import pytest
from google.protobuf.message import Message

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from tests.services.auth.client import DAY_S, AuthClient, refusal_of
from tests.services.auth.conftest import FakeSleep
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices


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


@pytest.mark.parametrize("param", ["requests_per_minute", "tokens_per_minute", "concurrent_requests"])
async def test_limit_that_cannot_be_is_refused_by_name(client: AuthClient, param: str) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    request = pb.UpdateKeyRequest(key_id=created.key.key_id)
    setattr(request, param, -1)
    with pytest.raises(LegatoError) as caught:
        await client.update_key(request)
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, param)


async def test_keys_are_counted_by_pepper(client: AuthClient) -> None:
    account = await client.create_account()
    created = [await client.create_key(account.account_id) for _ in range(3)]
    assert {one.key.pepper_version for one in created} == {1}
    await client.revoke_key(created[0].key.key_id)
    response = await client.keys.CountKeysByPepper(pb.CountKeysByPepperRequest())
    assert list(response.counts) == [pb.PepperCount(pepper_version=1, keys=2)]


def only(*class_ids: str) -> ClassAllowance:
    return ClassAllowance(class_ids=class_ids)


async def test_a_key_may_use_what_both_its_account_and_itself_allow(client: AuthClient) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    assert not (await client.verify(created.api_key)).principal.HasField("allowed_classes")
    key_id, account_id = created.key.key_id, account.account_id
    await client.update_key(pb.UpdateKeyRequest(key_id=key_id, allowed_classes=only("fortissimo", "forte")))
    narrowed = await client.update_account(
        pb.UpdateAccountRequest(account_id=account_id, allowed_classes=only("forte", "mezzo"))
    )
    assert (narrowed.allowed_classes, narrowed.auto_class) == (only("mezzo", "forte"), "forte")
    principal = (await client.verify(created.api_key)).principal
    assert (principal.allowed_classes, principal.preferred_class) == (only("forte"), "forte")
    await client.update_account(pb.UpdateAccountRequest(account_id=account_id, allowed_classes=only("mezzo")))
    principal = (await client.verify(created.api_key)).principal
    assert principal.HasField("allowed_classes")
    assert not principal.allowed_classes.class_ids
    await client.update_account(pb.UpdateAccountRequest(account_id=account_id, allow_all_classes=True))
    await client.update_key(pb.UpdateKeyRequest(key_id=key_id, allow_all_classes=True))
    assert not (await client.verify(created.api_key)).principal.HasField("allowed_classes")


async def test_a_key_is_not_given_a_class_that_its_account_may_not_use(client: AuthClient) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    await client.update_account(
        pb.UpdateAccountRequest(account_id=account.account_id, allowed_classes=only("mezzo", "forte"))
    )
    beyond = only("forte", "fortissimo")
    create = pb.CreateKeyRequest(account_id=account.account_id, allowed_classes=beyond)
    update = pb.UpdateKeyRequest(key_id=created.key.key_id, allowed_classes=beyond)
    for call in (client.keys.CreateKey(create), client.keys.UpdateKey(update)):
        with pytest.raises(LegatoError) as caught, errors_of("auth"):
            await call
        assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, "allowed_classes")
    assert not (await client.update_key(pb.UpdateKeyRequest(key_id=created.key.key_id))).HasField("allowed_classes")


@pytest.mark.parametrize("class_ids", [[], ["piano"], ["auto"], ["mezzo", "gpt-4"]])
async def test_only_classes_on_offer_can_be_allowed(client: AuthClient, class_ids: list[str]) -> None:
    account = await client.create_account()
    request = pb.UpdateAccountRequest(account_id=account.account_id, allowed_classes=only(*class_ids))
    with pytest.raises(LegatoError) as caught:
        await client.update_account(request)
    assert (caught.value.reason, caught.value.param) == (Reason.REQUEST_INVALID, "allowed_classes")
