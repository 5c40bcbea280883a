import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edge.access.principal_cache import LEASE_S
from edge.backends.auth import NAME, AuthClient, AuthReplica, Scope
from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core.peppers import Peppers
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import MOST_WAITING, PEPPER, WAIT_TIMEOUT_S, AuthHarness, bearer
from tests.support.fakes import FakeClock
from tests.support.fault_proxy import Cut

NEW_PEPPER = b"another pepper for tests: 32 bytes"


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, clock: FakeClock, log: Log) -> AsyncIterator[AuthHarness]:
    async with AuthHarness(socket_folder, tmp_path, clock, log).opened() as harness:
        yield harness


async def test_both_headers_carry_the_key(harness: AuthHarness) -> None:
    created = await harness.new_key()
    by_bearer = await harness.principals.authenticate(bearer(created.api_key))
    by_header = await harness.principals.authenticate([(b"x-api-key", created.api_key.encode())])
    assert by_bearer == by_header
    assert by_bearer.key_id == created.key.key_id
    assert by_bearer.preferred_class == "forte"


async def test_principal_has_a_digest_key_and_does_not_print_it(harness: AuthHarness) -> None:
    principal = await harness.principals.authenticate(bearer((await harness.new_key()).api_key))
    assert len(principal.digest_key) == 32
    assert repr(principal.digest_key) not in f"{principal} {principal!r}"


@pytest.mark.parametrize("other", [b"Bearer ", b"Bearer", b"bearer  ", b"Basic eDp5"])
async def test_header_without_a_key_does_not_hide_the_key_in_the_other(harness: AuthHarness, other: bytes) -> None:
    """Clients of other services send both, one of them empty."""
    created = await harness.new_key()
    headers = [(b"authorization", other), (b"x-api-key", created.api_key.encode())]
    for given in (headers, headers[::-1]):
        assert (await harness.principals.authenticate(given)).key_id == created.key.key_id


async def test_of_two_keys_that_of_the_bearer_counts(harness: AuthHarness) -> None:
    asking, other = await harness.new_key(), await harness.new_key()
    headers = [*bearer(asking.api_key), (b"x-api-key", other.api_key.encode())]
    for given in (headers, headers[::-1]):
        assert (await harness.principals.authenticate(given)).key_id == asking.key.key_id


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic sk-legato-x")],
        [(b"x-api-key", b"")],
    ],
)
async def test_no_key_is_said_to_be_missing(harness: AuthHarness, headers: list[tuple[bytes, bytes]]) -> None:
    error = await harness.refusal_of(headers)
    assert error.reason is Reason.KEY_INVALID
    assert "Authorization" in error.message


async def test_every_bad_key_is_refused_in_the_same_words(harness: AuthHarness, clock: FakeClock) -> None:
    expiring = await harness.new_key(days=30)
    revoked = await harness.new_key()
    await harness.revoke(revoked.key)
    await harness.principals.authenticate(bearer(expiring.api_key))
    clock.advance(30 * 24 * 3600)
    wrong_secret = revoked.api_key[:-8] + "AAAAAAAA"
    bad_keys = [expiring.api_key, revoked.api_key, wrong_secret, "sk-legato-nonsense", "k\u00e9y", "x" * 5000]
    errors = [await harness.refusal_of(bearer(api_key)) for api_key in bad_keys]
    assert {error.reason for error in errors} == {Reason.KEY_INVALID}
    assert len({error.message for error in errors}) == 1


class SkewedClock:
    """A clock whose time of day is wrong."""

    def __init__(self, right: FakeClock, skew_s: float) -> None:
        self._right, self._skew = right, timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return self._right.now() + self._skew

    def elapsed_s(self) -> float:
        return self._right.elapsed_s()


@pytest.mark.parametrize("skew_s", [-3600, 3600])
async def test_key_expires_by_the_time_of_auth_on_an_edge_whose_clock_is_wrong(
    socket_folder: Path, tmp_path: Path, clock: FakeClock, log: Log, skew_s: float
) -> None:
    edge_clock = SkewedClock(clock, skew_s)
    async with AuthHarness(socket_folder, tmp_path, clock, log, edge_clock=edge_clock).opened() as harness:
        key = bearer((await harness.new_key(days=30)).api_key)
        await harness.principals.authenticate(key)
        clock.advance(30 * 24 * 3600 - 1800)
        await harness.leased()
        assert harness.principals.recall(key) is not None
        clock.advance(1800)
        await harness.leased()
        assert harness.principals.recall(key) is None
        assert (await harness.refusal_of(key)).reason is Reason.KEY_INVALID


async def test_missing_scope_is_refused_by_name(harness: AuthHarness) -> None:
    created = await harness.new_key(Scope.SCOPE_MODELS)
    principal = await harness.principals.authenticate(bearer(created.api_key))
    principal.require(Scope.SCOPE_MODELS)
    with pytest.raises(LegatoError) as refusal:
        principal.require(Scope.SCOPE_INFERENCE)
    assert refusal.value.reason is Reason.SCOPE_MISSING
    assert "inference" in refusal.value.message


async def test_remembered_key_needs_no_auth_within_the_lease(harness: AuthHarness) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    await harness.shut()
    assert (await harness.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id


async def test_without_a_lease_and_without_auth_no_client_is_let_in(harness: AuthHarness, clock: FakeClock) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    await harness.shut()
    clock.advance(LEASE_S)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.UNAVAILABLE


async def test_many_who_wait_with_the_same_key_ask_once(harness: AuthHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    verify = AuthClient.verify

    async def count(self: AuthClient, api_key: str) -> pb.VerifyResponse:
        asked.append(api_key)
        return await verify(self, api_key)

    monkeypatch.setattr(AuthClient, "verify", count)
    good, other = (await harness.new_key()).api_key, (await harness.new_key()).api_key
    principals = await asyncio.gather(*(harness.principals.authenticate(bearer(good)) for _ in range(50)))
    assert len({principal.key_id for principal in principals}) == 1
    assert asked == [good]
    await harness.principals.authenticate(bearer(other))
    assert asked == [good, other]


async def test_who_leaves_while_auth_is_asked_takes_the_answer_from_no_other(harness: AuthHarness) -> None:
    created = await harness.new_key()
    leaving = asyncio.create_task(harness.principals.authenticate(bearer(created.api_key)))
    staying = asyncio.create_task(harness.principals.authenticate(bearer(created.api_key)))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).key_id == created.key.key_id


async def test_auth_that_comes_back_is_asked_again(harness: AuthHarness, clock: FakeClock) -> None:
    created = await harness.new_key()
    await harness.leased()
    await harness.shut()
    clock.advance(LEASE_S)
    await harness.open()
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while True:
            try:
                await harness.principals.authenticate(bearer(created.api_key))
                break
            except LegatoError:
                await asyncio.sleep(0.05)
    await harness.leased()


async def test_key_on_a_pepper_that_was_taken_away_is_refused_once_every_replica_was_restarted(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log, replicas=2).opened() as harness:
        old_key = await harness.new_key()
        for number in (0, 1):
            await harness.restart(number, Peppers({1: PEPPER, 2: NEW_PEPPER}))
        new_key = await harness.new_key()
        digest_keys = [(await harness.served(bearer(new_key.api_key))).digest_key]
        await harness.served(bearer(old_key.api_key))

        await harness.restart(0, Peppers({2: NEW_PEPPER}))
        await harness.heard_of((await harness.stub.Verify(pb.VerifyRequest(api_key=new_key.api_key))).epoch)
        # The replica that has not been restarted yet still takes the key.
        harness.lines[0].set(Cut())
        await harness.served(bearer(old_key.api_key))
        harness.lines[0].heal()
        await harness.restart(1, Peppers({2: NEW_PEPPER}))

        with pytest.raises(LegatoError) as refusal:
            await harness.served(bearer(old_key.api_key))
        assert refusal.value.reason is Reason.KEY_INVALID
        # What is digested must come out the same on every edge, also on one that knew the key before.
        digest_keys.append((await harness.served(bearer(new_key.api_key))).digest_key)
        oldest, newest = (Peppers({version: pepper}) for version, pepper in ((1, PEPPER), (2, NEW_PEPPER)))
        assert digest_keys == [peppers.digest_key(new_key.key.account_id) for peppers in (oldest, newest)]


async def test_use_of_a_key_reaches_auth(harness: AuthHarness) -> None:
    used, unused = await harness.new_key(), await harness.new_key()
    await harness.principals.authenticate(bearer(used.api_key))
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not (await harness.key(used.key)).HasField("last_use_time"):
            await asyncio.sleep(0.05)
    assert not (await harness.key(unused.key)).HasField("last_use_time")


async def test_age_of_what_is_known_about_keys_is_told_to_prometheus(harness: AuthHarness, clock: FakeClock) -> None:
    await harness.leased()
    await harness.shut()
    clock.advance(7)
    assert harness.registry.get_sample_value("auth_revocation_lag_seconds") == 7


async def test_key_is_verified_though_auth_is_silent_for_a_while(
    harness: AuthHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await harness.new_key()
    ask, asked = AuthReplica.ask, 0

    async def fail_twice(replica: AuthReplica, question: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise unavailable(NAME)
        return await ask(replica, question)

    monkeypatch.setattr(AuthReplica, "ask", fail_twice)
    assert (await harness.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id


async def test_strangers_at_one_address_leave_places_to_others_while_auth_is_away(harness: AuthHarness) -> None:
    created = await harness.new_key()
    await harness.shut()

    def identify(address: str, api_key: str) -> "asyncio.Task[Any]":
        scope = {"client": (address, 40000), "headers": bearer(api_key)}
        return asyncio.create_task(harness.principals.identify(scope, None))

    strangers = [identify("203.0.113.7", f"sk-legato-{number}") for number in range(MOST_WAITING + 10)]
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while harness.waits.requests + harness.waits.outcomes["full"] < len(strangers):
            await asyncio.sleep(0.01)
    with pytest.raises(LegatoError) as refusal:
        await identify("203.0.113.8", created.api_key)
    assert "too many" not in refusal.value.message
    refusals = await asyncio.gather(*strangers, return_exceptions=True)
    assert {error.reason for error in refusals if isinstance(error, LegatoError)} == {Reason.UNAVAILABLE}
