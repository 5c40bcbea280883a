"""Which processes may use a schema, told by its version."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database, open_database
from services.chassis.database.outages import SchemaTooNew, SchemaUnknown
from tests.e2e.upgrades.release_data import RELEASES, load_sqlite
from tests.services.chassis.notes import add, note_ids

SERVICES = Path(__file__).parents[4] / "services"
# As releases up to 0.1.0 look.
EARLIER_LOOK = sa.text("SELECT version_num FROM alembic_version")
SCRIPT = 'revision = "0002"\ndown_revision = "0001"\n{more}\n\ndef upgrade() -> None:\n    pass\n'


def add_script(migrations: Path, more: str) -> Path:
    script = migrations / "versions" / "0002_more.py"
    script.write_text(SCRIPT.format(more=more))
    return script


def look_like_earlier_releases(database: Database) -> str | None:
    with database.engine.connect() as connection:
        assert sa.inspect(connection).has_table("alembic_version")
        revision: str | None = connection.scalar(EARLIER_LOOK)
        return revision


def test_earlier_releases_still_find_the_revision_of_a_schema_that_they_may_use(
    database: Database, migrations: Path
) -> None:
    assert look_like_earlier_releases(database) == "0001"
    add_script(migrations, "")
    database.migrate(migrations)
    assert look_like_earlier_releases(database) == "0002"


def test_earlier_releases_are_refused_with_a_sentence_where_they_would_be_wrong(
    database: Database, migrations: Path
) -> None:
    add_script(migrations, "REFUSES_OLDER = True")
    database.migrate(migrations)
    with pytest.raises(sa.exc.DBAPIError, match="this database was migrated by a newer Legato: start that"):
        look_like_earlier_releases(database)
    # A later script runs in spite of that.
    later = migrations / "versions" / "0003_last.py"
    renames = 'op.execute("ALTER TABLE notes RENAME TO pages")'
    text = SCRIPT.format(more="from alembic import op\n").replace("pass", renames)
    later.write_text(text.replace('"0002"', '"0003"').replace('"0001"', '"0002"'))
    database.migrate(migrations)
    with pytest.raises(sa.exc.DBAPIError, match="this database was migrated by a newer Legato: start that"):
        look_like_earlier_releases(database)


def test_the_table_of_earlier_releases_is_taken_over(database_url: str, migrations: Path) -> None:
    database = Database(database_url, "example")
    database.migrate(migrations)
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("DROP VIEW alembic_version")
        connection.exec_driver_sql("DROP TABLE schema_version")
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0001')")
    database.prepare(migrations, migrates=True)
    version = database.read_version()
    assert version is not None
    assert version.revision == "0001"
    with database.transaction(writes=False) as connection:
        assert note_ids(connection) == [1]
    database.close()


def test_schema_of_a_version_between_releases_is_refused_if_its_script_is_gone(
    database_url: str, migrations: Path
) -> None:
    database = Database(database_url, "example")
    database.migrate(migrations)
    merged = add_script(migrations, "")
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE schema_version SET version_num = '0001b'")
    for migrates in (True, False):
        with pytest.raises(SchemaUnknown) as refused:
            database.prepare(migrations, migrates=migrates)
        assert "the schema example has revision 0001b of a development version" in refused.value.__notes__[0]
    merged.unlink()
    database.close()


@pytest.mark.parametrize(("service", "revision"), [("auth", "0015"), ("metering", "0020")])
def test_database_of_a_service_that_a_version_since_the_last_release_left_halfway_is_refused(
    tmp_path: Path, service: str, revision: str
) -> None:
    load_sqlite(RELEASES[-1], tmp_path)
    database = open_database(service, "", tmp_path)
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"UPDATE schema_version SET version_num = '{revision}'")
    with pytest.raises(SchemaUnknown) as refused:
        database.prepare(SERVICES / service / "migrations", migrates=True)
    assert f"the schema {service} has revision {revision} of a development version" in refused.value.__notes__[0]
    database.close()


async def test_a_process_that_is_older_than_a_schema_allows_neither_starts_nor_writes(
    database_url: str, migrations: Path
) -> None:
    older, newer = Database(database_url, "example"), Database(database_url, "example")
    older.prepare(migrations, migrates=True)
    await older.write(add(2))
    script = add_script(migrations, "REFUSES_OLDER = True")
    newer.prepare(migrations, migrates=True)
    script.unlink()

    for _ in range(2):
        with pytest.raises(SchemaTooNew, match="not available right now") as refused:
            await older.write(add(3))
        assert "the schema example was migrated and is too new for this process" in refused.value.__notes__[0]
    assert await older.read(note_ids) == [1, 2]
    for migrates in (True, False):
        with pytest.raises(SchemaTooNew) as refused:
            older.prepare(migrations, migrates=migrates)
        assert "the schema example was migrated by Legato 0." in refused.value.__notes__[0]
    await newer.write(add(3))
    assert await newer.read(note_ids) == [1, 2, 3]
    older.close()
    newer.close()
