from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.auth.core.records.accounts import Account
from services.auth.core.store import get
from services.auth.core.store.tables import metadata
from services.auth.service import MIGRATIONS
from services.chassis.database.database import Database
from services.chassis.database.schema_version import TABLE
from tests.services.auth.rows import ACCOUNT, add_account


def test_migrations_make_the_tables_that_the_store_uses(database: Database) -> None:
    with database.transaction(writes=False) as connection:
        migrated = MigrationContext.configure(connection, opts={"version_table": TABLE})
        assert compare_metadata(migrated, metadata) == []


def test_migrating_again_keeps_what_is_there(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        add_account(connection)
    database.migrate(MIGRATIONS)
    with database.transaction(writes=False) as connection:
        assert get(connection, Account, ACCOUNT.account_id) == ACCOUNT
