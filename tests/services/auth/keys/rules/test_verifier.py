from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core import key_format
from services.auth.core.parts import Parts
from services.auth.core.peppers import Peppers
from services.auth.keys.rules.keys import Keys
from services.auth.keys.rules.spend_limits import SpendLimiter
from services.auth.keys.rules.verifier import Verifier
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import call_directly
from tests.support.fakes import FakeClock

NEW_PEPPER = b"another pepper for tests: 32 bytes"


async def issue_key(database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep) -> str:
    auth = AuthService(database, peppers, clock, log, sleep)
    made = await call_directly(auth, pb.CreateAccountRequest(name="Acme"))
    return (await Keys(auth.parts, SpendLimiter(None)).create(None, made.account.account_id, "laptop")).secret


async def test_malformed_key_is_refused_without_asking_the_database(
    peppers: Peppers, clock: FakeClock, log: Log
) -> None:
    unreachable = Database("postgresql://legato@/nowhere?host=/nonexistent", "auth")
    with pytest.raises(LegatoError) as caught:
        await Verifier(Parts(unreachable, peppers, clock, log)).verify("sk-legato-1234")
    unreachable.close()
    assert caught.value.reason is Reason.KEY_INVALID


async def test_unknown_wrong_revoked_expired_and_suspended_keys_ask_the_same_of_the_database(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    auth = AuthService(database, peppers, clock, log, sleep)
    keys = Keys(auth.parts, SpendLimiter(None))
    made = [await call_directly(auth, pb.CreateAccountRequest(name=name)) for name in ("Acme", "Bolt")]
    account_id, suspended_id = [each.account.account_id for each in made]
    revoked, good = [await keys.create(None, account_id, "") for _ in range(2)]
    expired = await keys.create(None, account_id, "", expires_after_days=30)
    suspended = await keys.create(None, suspended_id, "")
    await keys.revoke(None, revoked.shown.key.key_id)
    await call_directly(auth, pb.SuspendAccountRequest(account_id=suspended_id))
    clock.advance(30 * 24 * 60 * 60)
    wrong = replace(key_format.mint(), public_id=good.shown.key.key_id.removeprefix("key_")).reveal()
    verifier = Verifier(Parts(database, peppers, clock, log))
    asked: list[list[str]] = []
    with statements_of(database) as statements:
        await verifier.verify(good.secret)
        asked.append(statements.copy())
        for key in (key_format.mint().reveal(), wrong, revoked.secret, expired.secret, suspended.secret):
            statements.clear()
            with pytest.raises(LegatoError):
                await verifier.verify(key)
            asked.append(statements.copy())
    assert all(statements == asked[0] for statements in asked)
    assert sum("api_keys" in statement for statement in asked[0]) == 1


@contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """Whatever the database is told meanwhile."""
    statements: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", record)


async def test_keys_outlive_the_change_of_the_pepper(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    old_key = await issue_key(database, peppers, clock, log, sleep)
    both = Peppers({1: b"a pepper for tests, 32 bytes long", 2: NEW_PEPPER})
    new_key = await issue_key(database, both, clock, log, sleep)
    verifier = Verifier(Parts(database, both, clock, log))
    versions = [(await verifier.verify(key)).holder.digest.pepper_version for key in (old_key, new_key)]
    assert versions == [1, 2]


async def test_what_was_verified_does_not_print_its_digest_key(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    verified = await Verifier(Parts(database, peppers, clock, log)).verify(
        await issue_key(database, peppers, clock, log, sleep)
    )
    assert repr(verified.digest_key) not in f"{verified} {verified!r}"


async def test_key_whose_pepper_was_taken_away_is_refused_and_the_operator_is_told(
    database: Database,
    peppers: Peppers,
    clock: FakeClock,
    log: Log,
    sleep: FakeSleep,
    log_text: Callable[[], str],
) -> None:
    key = await issue_key(database, peppers, clock, log, sleep)
    with pytest.raises(LegatoError) as caught:
        await Verifier(Parts(database, Peppers({2: NEW_PEPPER}), clock, log)).verify(key)
    assert caught.value.reason is Reason.KEY_INVALID
    assert "key.pepper_missing" in log_text()
    assert key not in log_text()


async def test_key_whose_pepper_another_replica_no_longer_has_is_good_but_not_to_be_remembered(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    """A caller that remembered it would still accept it when the last replica with its pepper is gone."""
    key = await issue_key(database, peppers, clock, log, sleep)
    old = AuthService(database, peppers, clock, log, sleep)
    await old.record_peppers()
    assert (await old.verifier.verify(key)).may_be_remembered
    await AuthService(database, Peppers({2: NEW_PEPPER}), clock, log, sleep).record_peppers()
    assert not (await old.verifier.verify(key)).may_be_remembered


async def test_another_pepper_under_a_known_version_is_refused_before_every_key_is(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    """A lost pepper made anew: there would be no word of why no key works."""
    await AuthService(database, peppers, clock, log, sleep).record_peppers()
    # While there are no keys, there is nothing to lose.
    await AuthService(database, Peppers({1: NEW_PEPPER}), clock, log, sleep).record_peppers()
    await AuthService(database, peppers, clock, log, sleep).record_peppers()
    key = await issue_key(database, peppers, clock, log, sleep)
    with pytest.raises(SettingsError, match="LEGATO_KEY_PEPPERS: version 1 is not the secret"):
        await AuthService(database, Peppers({1: NEW_PEPPER, 2: NEW_PEPPER}), clock, log, sleep).record_peppers()
    # Nothing was noted, so that the right one is still known.
    again = AuthService(database, peppers, clock, log, sleep)
    await again.record_peppers()
    assert (await again.verifier.verify(key)).may_be_remembered


async def test_pepper_that_is_brought_in_keeps_no_edge_from_remembering(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    key = await issue_key(database, peppers, clock, log, sleep)
    both = Peppers({1: b"a pepper for tests, 32 bytes long", 2: NEW_PEPPER})
    await AuthService(database, both, clock, log, sleep).record_peppers()
    assert (await Verifier(Parts(database, peppers, clock, log)).verify(key)).may_be_remembered
