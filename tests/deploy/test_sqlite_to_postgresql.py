from pathlib import Path

import pytest

from deploy.sqlite_to_postgresql import CannotCopy, copy_schema
from legato_protos.auth.v1.users_pb2 import CreateUserRequest
from services.auth.core.peppers import Peppers
from services.auth.service import MIGRATIONS as AUTH_MIGRATIONS
from services.auth.service import AuthService
from services.chassis.database.database import Database, open_database
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, SetSpendLimits, SpendLimits
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.prices import adopt_prices
from tests.services.auth.console import call_directly
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import ACCOUNT, LIFE_S, PRICES, ask_each, grant, reserve, settle
from tests.support.fakes import FakeClock


def open_migrated(url: str) -> Database:
    database = Database(url, "metering")
    database.migrate(MIGRATIONS)
    return database


async def test_books_go_on_in_postgresql_where_they_ended_in_sqlite(
    tmp_path: Path, postgres_url: str, log: Log
) -> None:
    file = tmp_path / "metering.db"
    before = open_migrated(f"sqlite:///{file}")
    with before.transaction(writes=True) as connection:
        prices = adopt_prices(connection, PRICES)
    limit = SetSpendLimits(ACCOUNT, WHOLE_ACCOUNT, SpendLimits(month_nanos=900))
    await ask_each(Writer(before, prices, LIFE_S, log), grant(1_000), limit, reserve(1), settle(1), reserve(2))
    [account] = await before.read(lambda connection: read_balances(connection, [ACCOUNT]))
    before.close()
    after = open_migrated(postgres_url)
    try:
        copied = copy_schema(file, postgres_url, "metering")
        assert copied["holds"] == 2
        assert await after.read(lambda connection: read_balances(connection, [ACCOUNT])) == [account]
        assert await audit(after) == []
        # What was held goes on, and new entries get numbers of their own.
        with after.transaction(writes=True) as connection:
            prices = adopt_prices(connection, PRICES)
        await ask_each(Writer(after, prices, LIFE_S, log), settle(2), grant(1_000, grant_id="grant-2"))
        assert await audit(after) == []
        with pytest.raises(CannotCopy, match="not empty"):
            copy_schema(file, postgres_url, "metering")
    finally:
        after.close()


def test_database_without_tables_is_named(tmp_path: Path, postgres_url: str) -> None:
    file = tmp_path / "metering.db"
    open_migrated(f"sqlite:///{file}").close()
    with pytest.raises(CannotCopy, match="legato migrate"):
        copy_schema(file, postgres_url, "metering")


async def test_the_audit_log_goes_on_in_postgresql_where_it_ended_in_sqlite(
    tmp_path: Path, postgres_url: str, log: Log
) -> None:
    peppers, clock = Peppers({1: b"a pepper for tests, 32 bytes long"}), FakeClock()
    before, after = open_database("auth", "", tmp_path), Database(postgres_url, "auth")
    for database in (before, after):
        database.migrate(AUTH_MIGRATIONS)
    await call_directly(AuthService(before, peppers, clock, log), CreateUserRequest(name="Ada"))
    before.close()
    assert copy_schema(tmp_path / "auth.db", postgres_url, "auth")["audit_events"] == 1
    auth = AuthService(after, peppers, clock, log)
    await call_directly(auth, CreateUserRequest(name="Grace"))
    assert await after.read(auth.parts.audit.verify) == (2, [])
    after.close()
