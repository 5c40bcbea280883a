"""A change at auth holds at the edge when the call returns, also for answers that run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.backends.auth import AuthClient
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import WAIT_TIMEOUT_S, AuthHarness, bearer


@pytest.fixture
async def real_time_harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[AuthHarness]:
    """A harness in real time: its lease must run out for a change to hold in time on a slow machine."""
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        yield harness


async def test_revoked_key_is_refused_when_the_call_returns(real_time_harness: AuthHarness) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    await harness.revoke(created.key)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.KEY_INVALID


async def test_changed_class_holds_when_the_call_returns(real_time_harness: AuthHarness) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    await harness.update_account(pb.UpdateAccountRequest(account_id=created.key.account_id, preferred_class="mezzo"))
    assert (await harness.principals.authenticate(bearer(created.api_key))).preferred_class == "mezzo"


async def test_narrowed_classes_hold_when_the_call_returns(real_time_harness: AuthHarness) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    principal = await harness.principals.authenticate(bearer(created.api_key))
    assert principal.may_use("fortissimo")
    await harness.leased()
    request = pb.UpdateAccountRequest(account_id=created.key.account_id)
    request.allowed_classes.class_ids.append("mezzo")
    await harness.update_account(request)
    principal = await harness.principals.authenticate(bearer(created.api_key))
    assert (principal.allowed_classes, principal.preferred_class) == (frozenset({"mezzo"}), "mezzo")


async def test_limits_of_a_key_hold_when_the_call_returns(real_time_harness: AuthHarness) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    account_id, key_id = created.key.account_id, created.key.key_id
    await asyncio.gather(
        harness.update_account(pb.UpdateAccountRequest(account_id=account_id, requests_per_minute=7)),
        harness.update_key(pb.UpdateKeyRequest(key_id=key_id, tokens_per_minute=8, concurrent_requests=9)),
    )
    principal = await harness.principals.authenticate(bearer(created.api_key))
    assert (principal.requests_per_minute, principal.tokens_per_minute, principal.concurrent_requests) == (7, 8, 9)


async def test_suspended_account_is_told_so_when_the_call_returns_and_let_in_when_it_is_resumed(
    real_time_harness: AuthHarness,
) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    await harness.suspend(created.key.account_id)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.ACCOUNT_SUSPENDED
    await harness.resume(created.key.account_id)
    assert (await harness.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id


@pytest.mark.parametrize("how", ["revoke", "suspend"])
async def test_running_answer_is_told_that_its_key_is_no_longer_good(real_time_harness: AuthHarness, how: str) -> None:
    harness = real_time_harness
    created, other = await harness.new_key(), await harness.new_key()
    running = await harness.principals.authenticate(bearer(created.api_key))
    with (
        harness.principals.track_key(running) as running_key,
        harness.principals.track_key(await harness.principals.authenticate(bearer(other.api_key))) as untouched,
    ):
        await harness.leased()
        running_key.raise_if_refused()
        await (harness.revoke(created.key) if how == "revoke" else harness.suspend(created.key.account_id))
        await harness.heard_of(2)
        with pytest.raises(LegatoError) as caught:
            running_key.raise_if_refused()
        assert caught.value.reason is Reason.KEY_INVALID
        untouched.raise_if_refused()


async def test_key_that_was_revoked_between_its_verification_and_the_answer_is_noticed(
    real_time_harness: AuthHarness,
) -> None:
    harness = real_time_harness
    created = await harness.new_key()
    principal = await harness.principals.authenticate(bearer(created.api_key))
    await harness.revoke(created.key)
    await harness.heard_of(2)
    # The heartbeat that named the key has come and gone.
    with harness.principals.track_key(principal) as running_key:
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not running_key.is_refused:
                await asyncio.sleep(0.01)


async def test_running_answers_are_looked_up_where_the_list_of_changes_has_a_gap(
    real_time_harness: AuthHarness,
) -> None:
    harness = real_time_harness
    revoked, kept = await harness.new_key(), await harness.new_key()
    principals = [await harness.principals.authenticate(bearer(created.api_key)) for created in (revoked, kept)]
    with harness.principals.track_key(principals[0]) as bad, harness.principals.track_key(principals[1]) as good:
        await harness.leased()
        await harness.principals._watch.close()
        await harness.revoke(revoked.key)
        # As if so much had changed that auth no longer knows what.
        harness.principals._principal_cache.epoch = 0
        harness.principals.start()
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not bad.is_refused:
                await asyncio.sleep(0.01)
        assert not good.is_refused
    assert (await harness.refusal_of(bearer(revoked.api_key))).reason is Reason.KEY_INVALID
    await harness.principals.authenticate(bearer(kept.api_key))


async def test_answer_from_before_a_change_is_not_believed(real_time_harness: AuthHarness) -> None:
    """A lookup that was under way while its key was revoked must not put the key back."""
    harness = real_time_harness
    created = await harness.new_key()
    await harness.leased()
    stale = await harness.stub.Verify(pb.VerifyRequest(api_key=created.api_key))
    await harness.revoke(created.key)
    await harness.heard_of(1)
    harness.principals._auth = StaleAuth(stale, harness.principals._auth)  # type: ignore[assignment]
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.KEY_INVALID


class StaleAuth:
    """Gives an old answer first, as a slow network would."""

    def __init__(self, stale: pb.VerifyResponse, auth: AuthClient) -> None:
        self._answers = [stale]
        self._auth = auth

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        return self._answers.pop() if self._answers else await self._auth.verify(api_key)
