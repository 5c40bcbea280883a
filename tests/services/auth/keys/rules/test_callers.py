"""Internal programs that call for accounts without a key: what they may do, and what ends it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.auth.v1 import callers_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.core.store import add
from services.auth.core.store.accounts import lock_account
from services.auth.keys.records import CallerGrant, Changes
from services.auth.keys.rules import callers
from services.auth.keys.store import callers as stored
from services.auth.keys.store.epochs import changes_since
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import OWNER, Console
from tests.support.fakes import FakeClock

NAME = "billing-bot"


@pytest.fixture
def other_replica(
    database_url: str, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> Iterator[AuthService]:
    opened = Database(database_url, "auth")
    yield AuthService(opened, peppers, clock, log, sleep)
    opened.close()


async def grant(console: Console, account_id: str = "", caller: str = NAME, **limits: int) -> pb.CallerGrant:
    """Grants an account; without one, all of them."""
    request = pb.GrantCallerRequest(caller=caller, account_id=account_id, all_accounts=not account_id, **limits)
    return (await console.call(console.callers.GrantCaller, request)).grant  # type: ignore[no-any-return]


async def revoke(console: Console, account_id: str = "", caller: str = NAME) -> list[pb.CallerGrant]:
    request = pb.RevokeCallerRequest(caller=caller, account_id=account_id)
    return list((await console.call(console.callers.RevokeCaller, request)).remaining_grants)


async def verify(console: Console, account_id: str, caller: str = NAME) -> auth_pb2.Principal:
    request = auth_pb2.VerifyCallerRequest(caller=caller, account_id=account_id)
    return (await console.call(console.auth.VerifyCaller, request)).principal  # type: ignore[no-any-return]


async def refusal(console: Console, account_id: str, caller: str = NAME) -> tuple[Reason, str] | None:
    try:
        await verify(console, account_id, caller)
    except LegatoError as error:
        return error.reason, error.message
    return None


async def caller_keys(console: Console, account_id: str) -> list[auth_pb2.Key]:
    request = auth_pb2.ListKeysRequest(account_id=account_id, with_callers=True)
    return list((await console.call(console.keys.ListKeys, request)).keys)


def heard(database: Database, since_epoch: int) -> Changes:
    """What an edge hears that knew of an epoch."""
    with database.transaction(writes=False) as connection:
        return changes_since(connection, since_epoch)


async def test_a_caller_is_to_an_account_what_a_key_without_limits_of_its_own_is(console: Console) -> None:
    account_id = await console.create_account()
    settings = auth_pb2.UpdateAccountRequest(
        account_id=account_id, preferred_class="mezzo", memory=False, tokens_per_minute=900
    )
    settings.allowed_classes.class_ids.extend(["mezzo", "forte"])
    await console.call(console.accounts.UpdateAccount, settings)
    made = await console.call(console.keys.CreateKey, auth_pb2.CreateKeyRequest(account_id=account_id))
    of_key = (await console.call(console.auth.Verify, auth_pb2.VerifyRequest(api_key=made.api_key))).principal
    await grant(console, account_id)
    principal = await verify(console, account_id)
    assert set(principal.scopes) == {auth_pb2.SCOPE_INFERENCE, auth_pb2.SCOPE_MODELS, auth_pb2.SCOPE_USAGE}
    assert (principal.caller, principal.tokens_per_minute) == (NAME, 900)
    assert principal.key_id != of_key.key_id
    principal.ClearField("scopes")
    principal.ClearField("caller")
    principal.key_id = of_key.key_id
    assert principal == of_key


async def test_limits_of_a_grant_go_before_the_accounts_and_those_of_one_account_before_those_of_all(
    console: Console,
) -> None:
    one, other = await console.create_account(), await console.create_account()
    for account_id in (one, other):
        request = auth_pb2.UpdateAccountRequest(
            account_id=account_id, requests_per_minute=10, tokens_per_minute=10, concurrent_requests=10
        )
        await console.call(console.accounts.UpdateAccount, request)

    async def limits_of(account_id: str) -> tuple[int, int, int]:
        found = await verify(console, account_id)
        return found.requests_per_minute, found.tokens_per_minute, found.concurrent_requests

    await grant(console, requests_per_minute=20)
    assert [await limits_of(one), await limits_of(other)] == [(20, 10, 10), (20, 10, 10)]
    await grant(console, one, tokens_per_minute=30)
    assert [await limits_of(one), await limits_of(other)] == [(10, 30, 10), (20, 10, 10)]
    await grant(console, concurrent_requests=40)
    assert [await limits_of(one), await limits_of(other)] == [(10, 30, 10), (10, 10, 40)]
    [remaining] = await revoke(console, one)
    assert (remaining.account_id, remaining.concurrent_requests) == ("", 40)
    assert [await limits_of(one), await limits_of(other)] == [(10, 10, 40), (10, 10, 40)]


async def test_a_grant_of_all_accounts_is_good_for_those_that_are_created_later(console: Console) -> None:
    await grant(console)
    account_id = await console.create_account()
    first = await verify(console, account_id)
    assert first.account_id == account_id
    assert (await verify(console, account_id)).key_id == first.key_id
    [key] = await caller_keys(console, account_id)
    assert (key.key_id, key.caller, key.name) == (first.key_id, NAME, NAME)


async def test_whatever_is_missing_a_caller_gets_one_refusal_and_nothing_is_written(
    console: Console, database: Database
) -> None:
    own, other = await console.create_account(), await console.create_account()
    await grant(console, own)
    await grant(console, caller="everywhere")
    before = heard(database, 0).epoch
    refusals = {
        await refusal(console, account_id, caller)
        for account_id, caller in (
            (other, NAME),
            (own, "unknown"),
            ("acct_unknown", NAME),
            ("acct_unknown", "everywhere"),
            ("", "everywhere"),
            ("a\0b", "everywhere"),
            (own, ""),
            (own, "no\0name"),
            (own, NAME.upper()),
        )
    }
    assert refusals == {(Reason.CALLER_NOT_GRANTED, "This caller may not call for this account.")}
    assert heard(database, 0).epoch == before
    assert await caller_keys(console, other) == []


async def test_a_suspended_account_is_refused_as_for_keys_until_it_is_resumed(
    console: Console, database: Database
) -> None:
    account_id = await console.create_account()
    await grant(console, account_id)
    key_id, before = (await verify(console, account_id)).key_id, heard(database, 0).epoch
    await console.call(console.accounts.SuspendAccount, auth_pb2.SuspendAccountRequest(account_id=account_id))
    assert await refusal(console, account_id) == (Reason.ACCOUNT_SUSPENDED, "This account is suspended.")
    assert heard(database, before).refused_key_ids == (key_id,)
    await console.call(console.accounts.ResumeAccount, auth_pb2.ResumeAccountRequest(account_id=account_id))
    assert await refusal(console, account_id) is None


async def test_revoking_refuses_every_account_and_edges_are_told_before_it_returns(
    console: Console, database: Database, sleep: FakeSleep
) -> None:
    accounts = [await console.create_account() for _ in range(3)]
    await grant(console)
    await grant(console, accounts[0])
    await grant(console, accounts[1], caller="another")
    key_ids = {(await verify(console, account_id)).key_id for account_id in accounts}
    kept, before = await verify(console, accounts[1], "another"), heard(database, 0).epoch
    sleep.waits_s.clear()
    assert await revoke(console) == []
    assert sleep.waits_s == [0.85]
    assert {await refusal(console, account_id) for account_id in accounts} == {
        (Reason.CALLER_NOT_GRANTED, "This caller may not call for this account.")
    }
    assert set(heard(database, before).refused_key_ids) == key_ids
    assert await verify(console, accounts[1], "another") == kept


async def test_a_changed_grant_makes_edges_forget_the_limits_that_they_know(
    console: Console, database: Database
) -> None:
    account_id = await console.create_account()
    await grant(console, account_id, requests_per_minute=5)
    key_id, before = (await verify(console, account_id)).key_id, heard(database, 0).epoch
    await grant(console, account_id, requests_per_minute=6)
    changes = heard(database, before)
    assert (changes.key_ids, changes.refused_key_ids) == ((key_id,), ())


async def test_a_grant_that_is_given_again_counts_under_the_same_key(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    first = await grant(console, account_id)
    key_id = (await verify(console, account_id)).key_id
    clock.advance(60)
    await revoke(console)
    clock.advance(60)
    assert await revoke(console) == [], "it is revoked already"
    [listed] = (await console.call(console.callers.ListCallers, pb.ListCallersRequest())).grants
    [key] = await caller_keys(console, account_id)
    for revoked in (listed, key):
        assert revoked.revoke_time.seconds - first.create_time.seconds == 60
    again = await grant(console, account_id, requests_per_minute=7)
    assert not again.HasField("revoke_time")
    assert again.create_time.seconds - first.create_time.seconds == 120
    assert (await verify(console, account_id)).key_id == key_id


async def test_two_replicas_that_see_a_caller_first_at_once_make_one_key(
    console: Console, auth: AuthService, other_replica: AuthService
) -> None:
    await grant(console)
    for _ in range(3):
        account_id = await console.create_account()
        asked = [replica.verifier.verify_caller(NAME, account_id) for replica in (auth, other_replica) * 4]
        found = {verified.holder.key.key_id for verified in await asyncio.gather(*asked)}
        assert found == {key.key_id for key in await caller_keys(console, account_id)}
        assert len(found) == 1


async def test_a_first_call_while_the_grant_is_being_revoked_waits_and_is_refused(
    console: Console, database: Database
) -> None:
    """The revocation has begun, but is not committed yet: what it will do must be waited for."""
    account_id = await console.create_account()
    await grant(console)
    with database.transaction(writes=True) as connection:
        [found] = stored.lock_grants(connection, NAME)
        stored.put_grants(connection, [replace(found, revoked_at_us=1)])
        stored.revoke_keys_without_grant(connection, NAME, 1)
        calling = asyncio.create_task(verify(console, account_id))
        # Its first read sees the grant; the key that it would add waits for us.
        done, _ = await asyncio.wait([calling], timeout=0.3)
        assert not done
    with pytest.raises(LegatoError) as caught:
        await calling
    assert caught.value.reason is Reason.CALLER_NOT_GRANTED
    assert await caller_keys(console, account_id) == []


async def test_a_revocation_while_a_first_call_makes_its_key_waits_and_names_it(
    console: Console, database: Database
) -> None:
    account_id = await console.create_account()
    await grant(console)
    before = heard(database, 0).epoch
    with database.transaction(writes=True) as connection:
        callers.make_key(connection, NAME, account_id, 1)
        revoking = asyncio.create_task(revoke(console))
        done, _ = await asyncio.wait([revoking], timeout=0.3)
        assert not done
    await revoking
    [key] = await caller_keys(console, account_id)
    assert heard(database, before).refused_key_ids == (key.key_id,)
    assert await refusal(console, account_id) is not None


async def test_a_changed_grant_sees_another_that_was_being_added_when_it_began(
    console: Console, database: Database
) -> None:
    changed, added = await console.create_account(), await console.create_account()
    await grant(console, changed)
    with database.transaction(writes=True) as connection:
        lock_account(connection, added)
        stored.lock_grants(connection, NAME)
        add(connection, CallerGrant("grant_added", NAME, added, 1))
        callers.make_key(connection, NAME, added, 1)
        changing = asyncio.create_task(grant(console, changed, requests_per_minute=5))
        done, _ = await asyncio.wait([changing], timeout=0.3)
        assert not done
    await changing
    assert [await refusal(console, account_id) for account_id in (changed, added)] == [None, None]


async def test_grants_and_revocations_at_once_leave_each_key_as_the_grants_that_are_left_say(
    console: Console, auth: AuthService, other_replica: AuthService
) -> None:
    accounts = [await console.create_account() for _ in range(3)]
    await grant(console)
    for account_id in accounts:
        await verify(console, account_id)
    for _ in range(3):
        await asyncio.gather(
            *(callers.Callers(auth.parts).revoke(None, NAME) for _ in range(2)),
            *(
                callers.Callers(other_replica.parts).grant(None, NAME, account_id, all_accounts=False, limits={})
                for account_id in accounts
            ),
        )
        listed = (await console.call(console.callers.ListCallers, pb.ListCallersRequest())).grants
        granted = {each.account_id for each in listed if not each.HasField("revoke_time")}
        good = {account_id for account_id in accounts if await refusal(console, account_id) is None}
        assert good == granted


async def test_what_a_caller_is_counted_under_is_no_key_to_use_or_change(console: Console) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id, OWNER)
    await grant(console, account_id)
    key_id = (await verify(console, account_id)).key_id
    request = auth_pb2.ListKeysRequest(account_id=account_id)
    assert (await console.call(console.key_admin.ListKeys, request, owner)).keys == []
    request.with_playground = True
    assert (await console.call(console.key_admin.ListKeys, request, owner)).keys == []
    request.with_callers = True
    [listed] = (await console.call(console.key_admin.ListKeys, request, owner)).keys
    assert (listed.key_id, listed.caller, listed.may_change, listed.is_playground) == (key_id, NAME, False, False)
    own: dict[str, Any] = {"account_id": account_id, "key_id": key_id}
    for method, change in (
        (console.key_admin.RevokeKey, auth_pb2.RevokeKeyRequest(**own)),
        (console.key_admin.RotateKey, auth_pb2.RotateKeyRequest(**own)),
        (console.key_admin.RenameKey, auth_pb2.RenameKeyRequest(name="x", **own)),
        (console.key_admin.UpdateKey, auth_pb2.UpdateKeyRequest(requests_per_minute=1, **own)),
    ):
        assert await console.reason(method, change, owner) is Reason.ROLE_MISSING
    assert await console.reason(console.keys.RevokeKey, auth_pb2.RevokeKeyRequest(key_id=key_id)) is Reason.NOT_FOUND
    counted = await console.call(console.keys.CountKeysByPepper, auth_pb2.CountKeysByPepperRequest())
    assert counted.counts == []
    assert await refusal(console, account_id) is None


async def test_callers_of_an_account_are_named_by_key_also_when_they_may_call_no_more(console: Console) -> None:
    account_id, other = await console.create_account(), await console.create_account()
    await grant(console, account_id)
    await grant(console, account_id, "a-second")
    await grant(console, other, "elsewhere")
    await revoke(console)
    key_ids = {key.caller: key.key_id for key in await caller_keys(console, account_id)}
    listed = await console.call(console.auth.ListCallerKeys, auth_pb2.ListCallerKeysRequest(account_id=account_id))
    assert [(key.caller, key.key_id) for key in listed.keys] == sorted(key_ids.items())
    assert sorted(key_ids) == ["a-second", NAME]


async def test_what_is_no_grant_is_refused_with_the_field_that_is_wrong(console: Console) -> None:
    account_id = await console.create_account()
    for given, reason, param in (
        ({"caller": "Not A Name", "all_accounts": True}, Reason.REQUEST_INVALID, "caller"),
        ({"caller": NAME}, Reason.REQUEST_INVALID, "account_id"),
        ({"caller": NAME, "account_id": account_id, "all_accounts": True}, Reason.REQUEST_INVALID, "account_id"),
        ({"caller": NAME, "account_id": "acct_unknown"}, Reason.NOT_FOUND, None),
        (
            {"caller": NAME, "all_accounts": True, "concurrent_requests": 10**9},
            Reason.REQUEST_INVALID,
            "concurrent_requests",
        ),
    ):
        with pytest.raises(LegatoError) as caught:
            await console.call(console.callers.GrantCaller, pb.GrantCallerRequest(**given))
        assert (caught.value.reason, caught.value.param) == (reason, param), given
    await grant(console, account_id)
    for caller, of_account in (("mistyped", ""), (NAME, await console.create_account())):
        request = pb.RevokeCallerRequest(caller=caller, account_id=of_account)
        assert await console.reason(console.callers.RevokeCaller, request) is Reason.NOT_FOUND


async def test_grants_are_listed_page_by_page_the_oldest_first(console: Console, clock: FakeClock) -> None:
    for caller in ("first", "second", "third"):
        clock.advance(1)
        await grant(console, caller=caller, tokens_per_minute=1_000)
    first = await console.call(console.callers.ListCallers, pb.ListCallersRequest(page_size=2))
    request = pb.ListCallersRequest(page_token=first.next_page_token)
    last = await console.call(console.callers.ListCallers, request)
    assert [[each.caller for each in page.grants] for page in (first, last)] == [["first", "second"], ["third"]]
    assert last.next_page_token == ""
    assert last.grants[0].tokens_per_minute == 1_000
    assert not last.grants[0].HasField("requests_per_minute")


async def test_the_audit_log_says_who_was_granted_which_account(console: Console) -> None:
    account_id = await console.create_account()
    await grant(console)
    await grant(console, account_id)
    await revoke(console)
    await revoke(console)
    request = users_pb2.ListAuditEventsRequest(action="caller")
    events = (await console.call(console.admin_audit.ListAuditEvents, request)).events
    told = [(event.action, event.account_id, event.object_id) for event in events]
    assert told[2:] == [("caller.granted", account_id, NAME), ("caller.granted", "", NAME)]
    assert sorted(told[:2]) == [("caller.revoked", "", NAME), ("caller.revoked", account_id, NAME)]
