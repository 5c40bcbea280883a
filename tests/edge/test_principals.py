import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from edge.auth import NAME, Auth, AuthReplica
from edge.principals import Principals, Scope
from edge.remembered import LEASE_S
from protos.auth.v1 import auth_pb2 as pb
from protos.auth.v1.auth_pb2_grpc import AccountAdminServiceStub, AuthServiceStub, KeyAdminServiceStub
from services.auth.keys import Peppers
from services.auth.service import MIGRATIONS
from services.auth.service import Auth as AuthService
from services.chassis.channel import open_channel
from services.chassis.clock import Clock, SystemClock
from services.chassis.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log
from services.chassis.replicas import Replicas
from services.chassis.server import Server
from tests.fakes import FakeClock


class House:
    """An edge's principals beside a real auth service; between them a door that can be shut."""

    def __init__(self, socket_folder: Path, tmp_path: Path, clock: Clock, log: Log) -> None:
        self._address = f"unix:{socket_folder}/auth.sock"
        self._clock = clock
        self._log = log
        self._database = Database(f"sqlite:///{tmp_path}/auth.db", "auth")
        self._database.migrate(MIGRATIONS)
        self._auth = AuthService(self._database, Peppers({1: b"a pepper for tests, 32 bytes long"}), clock, log)
        self._channel = open_channel(self._address)
        self._replicas = Replicas(NAME, self._address, lambda address: AuthReplica(address, clock), log)
        self._accounts = AccountAdminServiceStub(self._channel)
        self._keys = KeyAdminServiceStub(self._channel)
        self.registry = CollectorRegistry()
        self.principals = Principals(self._replicas, clock, log, self.registry)

    async def open(self) -> None:
        self._server = Server(self._address, self._auth.registrations, self._log)
        await self._server.start()

    async def start(self) -> None:
        await self.open()
        await self._replicas.start()
        self.principals.start()

    async def shut(self) -> None:
        await self._server.stop(0)

    async def close(self) -> None:
        await self.principals.close()
        await self._replicas.close()
        await self._channel.close()
        await self.shut()
        self._database.close()

    async def new_key(self, *scopes: "Scope.ValueType", days: int | None = None) -> pb.CreateKeyResponse:
        account = (await self._accounts.CreateAccount(pb.CreateAccountRequest(name="Ann"))).account
        return await self._keys.CreateKey(
            pb.CreateKeyRequest(account_id=account.account_id, name="k", scopes=scopes, expires_after_days=days)
        )

    async def revoke(self, key: pb.Key) -> None:
        await self._keys.RevokeKey(pb.RevokeKeyRequest(key_id=key.key_id))

    async def set_class(self, account_id: str, class_id: str) -> None:
        await self._accounts.UpdateAccount(pb.UpdateAccountRequest(account_id=account_id, preferred_class=class_id))

    async def leased(self) -> None:
        """The watch has spoken since the clock last moved."""
        async with asyncio.timeout(5):
            while self.principals._remembered.lag_s >= LEASE_S:
                await asyncio.sleep(0.01)

    async def heard_of(self, epoch: int) -> None:
        async with asyncio.timeout(5):
            while self.principals._remembered.epoch < epoch:
                await asyncio.sleep(0.01)


def bearer(api_key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"authorization", b"Bearer " + api_key.encode())]


@pytest.fixture
async def house(socket_folder: Path, tmp_path: Path, clock: FakeClock, log: Log) -> AsyncIterator[House]:
    house = House(socket_folder, tmp_path, clock, log)
    await house.start()
    yield house
    await house.close()


@pytest.fixture
async def real_time_house(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[House]:
    """Where the lease really runs out, as it must for a change to hold in time on a slow machine too."""
    house = House(socket_folder, tmp_path, SystemClock(), log)
    await house.start()
    yield house
    await house.close()


async def refused(house: House, headers: list[tuple[bytes, bytes]]) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await house.principals.authenticate(headers)
    return refusal.value


async def test_both_headers_carry_the_key(house: House) -> None:
    created = await house.new_key()
    by_bearer = await house.principals.authenticate(bearer(created.api_key))
    by_header = await house.principals.authenticate([(b"x-api-key", created.api_key.encode())])
    assert by_bearer == by_header
    assert by_bearer.key_id == created.key.key_id
    assert by_bearer.preferred_class == "forte"


async def test_principal_has_a_digest_key_and_does_not_print_it(house: House) -> None:
    principal = await house.principals.authenticate(bearer((await house.new_key()).api_key))
    assert len(principal.digest_key) == 32
    assert repr(principal.digest_key) not in f"{principal} {principal!r}"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic sk-legato-x")],
        [(b"x-api-key", b"")],
    ],
)
async def test_no_key_is_said_to_be_missing(house: House, headers: list[tuple[bytes, bytes]]) -> None:
    error = await refused(house, headers)
    assert error.reason is Reason.KEY_INVALID
    assert "Authorization" in error.message


async def test_every_bad_key_is_refused_in_the_same_words(house: House, clock: FakeClock) -> None:
    expiring = await house.new_key(days=30)
    revoked = await house.new_key()
    await house.revoke(revoked.key)
    await house.principals.authenticate(bearer(expiring.api_key))
    clock.advance(30 * 24 * 3600)
    wrong_secret = revoked.api_key[:-8] + "AAAAAAAA"
    bad_keys = [expiring.api_key, revoked.api_key, wrong_secret, "sk-legato-nonsense", "k\u00e9y", "x" * 5000]
    errors = [await refused(house, bearer(api_key)) for api_key in bad_keys]
    assert {error.reason for error in errors} == {Reason.KEY_INVALID}
    assert len({error.message for error in errors}) == 1


async def test_missing_scope_is_refused_by_name(house: House) -> None:
    created = await house.new_key(Scope.SCOPE_MODELS)
    principal = await house.principals.authenticate(bearer(created.api_key))
    principal.require(Scope.SCOPE_MODELS)
    with pytest.raises(LegatoError) as refusal:
        principal.require(Scope.SCOPE_INFERENCE)
    assert refusal.value.reason is Reason.SCOPE_MISSING
    assert "inference" in refusal.value.message


async def test_remembered_key_needs_no_auth_within_the_lease(house: House) -> None:
    created = await house.new_key()
    await house.principals.authenticate(bearer(created.api_key))
    await house.leased()
    await house.shut()
    assert (await house.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id


async def test_without_a_lease_and_without_auth_nobody_is_let_in(house: House, clock: FakeClock) -> None:
    created = await house.new_key()
    await house.principals.authenticate(bearer(created.api_key))
    await house.leased()
    await house.shut()
    clock.advance(LEASE_S)
    assert (await refused(house, bearer(created.api_key))).reason is Reason.UNAVAILABLE


async def test_auth_that_comes_back_is_asked_again(house: House, clock: FakeClock) -> None:
    created = await house.new_key()
    await house.leased()
    await house.shut()
    clock.advance(LEASE_S)
    await house.open()
    async with asyncio.timeout(5):
        while True:
            try:
                await house.principals.authenticate(bearer(created.api_key))
                break
            except LegatoError:
                await asyncio.sleep(0.05)
    await house.leased()


async def test_revoked_key_is_refused_when_the_call_returns(real_time_house: House) -> None:
    house = real_time_house
    created = await house.new_key()
    await house.principals.authenticate(bearer(created.api_key))
    await house.leased()
    await house.revoke(created.key)
    assert (await refused(house, bearer(created.api_key))).reason is Reason.KEY_INVALID


async def test_changed_class_holds_when_the_call_returns(real_time_house: House) -> None:
    house = real_time_house
    created = await house.new_key()
    await house.principals.authenticate(bearer(created.api_key))
    await house.leased()
    await house.set_class(created.key.account_id, "mezzo")
    assert (await house.principals.authenticate(bearer(created.api_key))).preferred_class == "mezzo"


async def test_answer_from_before_a_change_is_not_believed(real_time_house: House) -> None:
    """A lookup that was under way while its key was revoked must not put the key back."""
    house = real_time_house
    created = await house.new_key()
    await house.leased()
    stale = await AuthServiceStub(house._channel).Verify(pb.VerifyRequest(api_key=created.api_key))
    await house.revoke(created.key)
    await house.heard_of(1)
    house.principals._auth = StaleAuth(stale, house.principals._auth)  # type: ignore[assignment]
    assert (await refused(house, bearer(created.api_key))).reason is Reason.KEY_INVALID


class StaleAuth:
    """Gives an old answer first, as a slow network would."""

    def __init__(self, stale: pb.VerifyResponse, auth: Auth) -> None:
        self._answers = [stale]
        self._auth = auth

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        return self._answers.pop() if self._answers else await self._auth.verify(api_key)
