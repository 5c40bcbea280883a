"""Internal callers at the edge: known like keys, and refused like those."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edge.backends.auth import AuthClient, Scope
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import callers_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import WAIT_TIMEOUT_S, AuthHarness, bearer

NAME = "billing-bot"


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[AuthHarness]:
    """Runs in real time: a lease must run out for a change to hold in time on a slow machine."""
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        yield harness


async def granted_account(harness: AuthHarness, **limits: Any) -> str:
    account_id = (await harness.new_key()).key.account_id
    await harness.callers.GrantCaller(pb.GrantCallerRequest(caller=NAME, account_id=account_id, **limits))
    return account_id


async def refusal_of(harness: AuthHarness, account_id: str, caller: str = NAME) -> Reason:
    with pytest.raises(LegatoError) as caught:
        await harness.principals.identify_caller({}, caller, account_id, None)
    return caught.value.reason


async def test_a_caller_is_remembered_for_one_account_and_one_name(
    harness: AuthHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    account_id, asked = await granted_account(harness, concurrent_requests=3), []
    verify_caller = AuthClient.verify_caller

    async def count(self: AuthClient, caller: str, of: str) -> auth_pb2.VerifyCallerResponse:
        asked.append((caller, of))
        return await verify_caller(self, caller, of)

    monkeypatch.setattr(AuthClient, "verify_caller", count)
    await harness.leased()
    identify = harness.principals.identify_caller
    found = await asyncio.gather(*(identify({}, NAME, account_id, Scope.SCOPE_INFERENCE) for _ in range(20)))
    found.append(await identify({}, NAME, account_id, Scope.SCOPE_USAGE))
    assert len({principal.key_id for principal in found}) == 1
    assert (found[0].account_id, found[0].caller, found[0].concurrent_requests) == (account_id, NAME, 3)
    assert asked == [(NAME, account_id)]
    other_account = (await harness.new_key()).key.account_id
    for name, of in ((NAME, other_account), ("billing-bo", f"t {account_id}"), ("another", account_id)):
        assert await refusal_of(harness, of, name) is Reason.CALLER_NOT_GRANTED
    assert await harness.principals.list_callers(account_id) == {found[0].key_id: NAME}
    assert await harness.principals.list_callers(other_account) == {}


async def test_a_refused_caller_is_no_wrong_key_and_a_granted_one_is_no_key(harness: AuthHarness) -> None:
    account_id = await granted_account(harness)
    await harness.principals.identify_caller({}, NAME, account_id, None)
    for header in (f"{NAME} {account_id}", f"\xff{NAME} {account_id}"):
        assert (await harness.refusal_of(bearer(header))).reason is Reason.KEY_INVALID


async def test_a_revoked_grant_is_refused_when_the_call_returns_and_ends_answers_that_run(
    harness: AuthHarness,
) -> None:
    account_id, kept = await granted_account(harness), await granted_account(harness)
    running = await harness.principals.identify_caller({}, NAME, account_id, None)
    other = await harness.principals.identify_caller({}, NAME, kept, None)
    await harness.leased()
    with harness.principals.track_key(running) as ended, harness.principals.track_key(other) as untouched:
        ended.raise_if_refused()
        await harness.callers.RevokeCaller(pb.RevokeCallerRequest(caller=NAME, account_id=account_id))
        assert await refusal_of(harness, account_id) is Reason.CALLER_NOT_GRANTED
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not ended.is_refused:
                await asyncio.sleep(0.01)
        with pytest.raises(LegatoError) as caught:
            ended.raise_if_refused()
        assert caught.value.reason is Reason.CALLER_NOT_GRANTED
        untouched.raise_if_refused()
    assert (await harness.principals.identify_caller({}, NAME, kept, None)).account_id == kept


async def test_changed_limits_and_a_suspension_hold_when_the_call_returns(harness: AuthHarness) -> None:
    account_id = await granted_account(harness)
    assert (await harness.principals.identify_caller({}, NAME, account_id, None)).requests_per_minute is None
    await harness.leased()
    request = pb.GrantCallerRequest(caller=NAME, account_id=account_id, requests_per_minute=7)
    await harness.callers.GrantCaller(request)
    assert (await harness.principals.identify_caller({}, NAME, account_id, None)).requests_per_minute == 7
    await harness.suspend(account_id)
    assert await refusal_of(harness, account_id) is Reason.ACCOUNT_SUSPENDED


async def test_an_answer_of_auth_that_a_revocation_overtook_is_not_used(
    harness: AuthHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Auth has read the grant, and its answer arrives after the edge has heard of the revocation."""
    account_id = await granted_account(harness)
    verify_caller, read, may_arrive = AuthClient.verify_caller, asyncio.Event(), asyncio.Event()

    async def delay(self: AuthClient, caller: str, of: str) -> auth_pb2.VerifyCallerResponse:
        answer = await verify_caller(self, caller, of)
        read.set()
        await may_arrive.wait()
        return answer

    monkeypatch.setattr(AuthClient, "verify_caller", delay)
    asking = asyncio.create_task(harness.principals.identify_caller({}, NAME, account_id, None))
    await read.wait()
    await harness.callers.RevokeCaller(pb.RevokeCallerRequest(caller=NAME))
    may_arrive.set()
    with pytest.raises(LegatoError) as caught:
        await asking
    assert caught.value.reason is Reason.CALLER_NOT_GRANTED
